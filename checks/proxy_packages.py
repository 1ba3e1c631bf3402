"""The packages of the proxy's checks."""
from python_packages import run_with

PACKAGES = ["hpack", "hyperframe", "websockets", "uvicorn", "gunicorn", "grpcio"]


def run_with_packages():
    """Starts the check again with a Python that has the packages."""
    run_with("proxy-checks-python", PACKAGES, [*PACKAGES[:-1], "grpc"])
