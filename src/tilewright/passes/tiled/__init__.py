"""Block- and register-tiled contractions on devices with thread blocks [S0]."""
