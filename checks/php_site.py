"""A site of `selvedge run` with PHP-FPM behind it, whose processes run in a folder of their own, and a client with cookies."""
import glob
import html
import http.cookiejar
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from pathlib import Path

from clients import free_address, wait_until_it_listens

WAIT = 60
PASSWORD = "a long password of the check"
POOL = """
[global]
error_log = {folder}/fpm.log
[www]
user = www-data
group = www-data
listen = {folder}/fpm.sock
listen.mode = 0666
pm = static
pm.max_children = 4
php_admin_value[sys_temp_dir] = {folder}/temporary
php_admin_value[upload_tmp_dir] = {folder}/temporary
php_admin_value[session.save_path] = {folder}/temporary
"""
CONFIGURATION = """
listen "{address}"
log {{ access "access.log"; error "error.log"; }}
site "127.0.0.1" {{
    root "{root}"
    {routes}
}}
"""


class PhpSite:
    """PHP-FPM and `selvedge run`, and what a subclass starts."""

    root = "site"
    # `{folder}` is the folder of the check.
    routes = 'route "/*" {{ php "unix:{folder}/fpm.sock"; }}'

    def __init__(self, binary, driver="epoll"):
        self.folder = Path(tempfile.mkdtemp(prefix="selvedge-php-"))
        self.folder.chmod(0o755)
        self.address = free_address()
        self.origin = f"http://{self.address}"
        self.running = []
        self.log = self.folder / "error.log"
        try:
            self.begin(os.path.abspath(binary), driver)
        except BaseException:
            self.__exit__(True)
            raise

    def prepare(self):
        """Creates the files of the site, and starts other programs."""
        raise NotImplementedError

    def configuration(self):
        """Returns the text of the configuration."""
        return CONFIGURATION.format(address=self.address, root=self.root, routes=self.routes.format(folder=self.folder))

    def begin(self, binary, driver):
        (self.folder / "temporary").mkdir()
        shutil.chown(self.folder / "temporary", "www-data")
        (self.folder / "fpm.conf").write_text(POOL.format(folder=self.folder))
        php = sorted(glob.glob("/usr/sbin/php-fpm*"))[-1]
        self.start([php, "--fpm-config", self.folder / "fpm.conf", "--nodaemonize", "--allow-to-run-as-root"])
        self.prepare()
        wait_for((self.folder / "fpm.sock").exists, "socket of PHP-FPM")
        configuration = self.folder / "selvedge.kdl"
        configuration.write_text(self.configuration())
        checked = subprocess.run([binary, "check", configuration], capture_output=True, text=True, timeout=60)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        environment = {**os.environ, "HOME": str(self.folder), "SELVEDGE_DRIVER": driver}
        self.server = self.start([binary, "run", configuration], environment)
        wait_until_it_listens(self.address)
        self.cookies = http.cookiejar.CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def copy(self, folder):
        """Copies the files of a package to the root, as the user of PHP-FPM. Its links to other packages lead out of a root."""
        subprocess.run(["cp", "-rL", folder, self.folder / "site"], stderr=subprocess.DEVNULL)
        self.give("site")

    def give(self, name):
        """Makes the user of PHP-FPM the owner of a file or folder, and of all in it."""
        subprocess.run(["chown", "-R", "www-data:www-data", self.folder / name], check=True)

    def start(self, command, environment=None):
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.running.append(process)
        return process

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for process in reversed(self.running):
            process.terminate()
            process.wait(60)
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        if kind is None:
            assert self.server.returncode == 0 and "panicked" not in log, log[-3000:]
            shutil.rmtree(self.folder)
        else:
            print(f"the log is in {self.folder}: {log[-2000:]}")

    def open(self, url, data, fields, method):
        """Returns the status, the fields, the content and the URL of a response, after redirects."""
        request = urllib.request.Request(url, data, fields, method=method)
        try:
            response = self.opener.open(request, timeout=WAIT)
        except urllib.error.HTTPError as error:
            response = error
        return response.status, response.headers, response.read(), response.url

    def fetch(self, path, data=None, fields=None, status=200, method=None):
        """Returns the fields and the content of a page, after redirects. `data` are bytes, or values of a form."""
        url = path if path.startswith("http") else self.origin + path
        if isinstance(data, dict):
            data = urllib.parse.urlencode(data).encode()
        got, headers, content, self.url = self.open(url, data, {"User-Agent": "check", **(fields or {})}, method)
        assert got == status, f"{path}: {got} {content[:2000]}"
        return headers, content

    def page(self, *arguments, **options):
        return self.fetch(*arguments, **options)[1].decode()


def wait_for(is_true, what):
    end = time.monotonic() + WAIT
    while not is_true():
        assert time.monotonic() < end, f"no {what} within {WAIT} s"
        time.sleep(0.02)


def value_of(page, name):
    """Returns the value of a field of a form, whatever the order of its attributes is."""
    for tag in re.findall(r"<input[^>]*>", page):
        if re.search(rf'name=["\']{re.escape(name)}["\']', tag) and (found := re.search(r'value=["\']([^"\']*)["\']', tag)):
            return html.unescape(found.group(1))
    raise AssertionError(f"no {name} in {page[:1000]}")


def picture():
    """Returns a PNG of one pixel."""
    def chunk(kind, data):
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = (1).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
