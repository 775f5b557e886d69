"""The packed CPU form of a contraction: panels packed from any strides, and BLIS's loop nest (GETT)."""
