"""The `tilewright` command.

main.py is the command line; stages.py prints what `show` and `explain` do, bench.py and bench_file.py what `bench`
does, tune.py what `tune` does.
"""
