"""Block tiling of general programs by variance: nests of maps around sequential streams [S3].

form.py decides by choice.py (tiles, whose code is tiles.py) and lane_choice.py (lanes: lanes.py with rows.py).
"""
