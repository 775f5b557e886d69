"""Block tiling of general programs by variance: nests of maps around sequential streams [S3]."""
