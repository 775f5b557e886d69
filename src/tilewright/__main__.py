"""`python -m tilewright`: the `tilewright` command of this interpreter."""

from tilewright.cli.main import app

if __name__ == "__main__":
    app()
