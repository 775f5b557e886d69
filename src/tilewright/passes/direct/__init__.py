"""The direct CPU form of a contraction: register tiles fed from the operands' own strides [S1]."""
