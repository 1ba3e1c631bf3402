#!/usr/bin/env python3
"""Installs WordPress behind `route "/*" { php … }` and clicks through it.

    python3 checks/wordpress.py target/release/selvedge [--driver epoll|io_uring]

Needs root, and Debian's packages php-fpm, php-mysql, wordpress, wordpress-theme-twentytwentythree and mariadb-server. PHP-FPM and MariaDB run with folders of
their own. The steps: install by the form, log in, choose pretty permalinks, publish a post, read it, upload a picture and
fetch it, comment, a page that does not exist, static files, the source of the configuration, log out.
"""

import argparse
import html
import json
import re
import shutil
import subprocess
import sys

from php_site import PASSWORD, WAIT, PhpSite, picture, value_of, wait_for

WP_CONFIG = """<?php
define('DB_NAME', 'wordpress'); define('DB_USER', 'root'); define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:{folder}/mariadb.sock'); define('DB_CHARSET', 'utf8mb4'); define('DB_COLLATE', '');
define('AUTH_KEY', 'a'); define('SECURE_AUTH_KEY', 'b'); define('LOGGED_IN_KEY', 'c'); define('NONCE_KEY', 'd');
define('AUTH_SALT', 'e'); define('SECURE_AUTH_SALT', 'f'); define('LOGGED_IN_SALT', 'g'); define('NONCE_SALT', 'h');
define('WP_HTTP_BLOCK_EXTERNAL', true); define('DISABLE_WP_CRON', true); define('WP_DEBUG', false);
$table_prefix = 'wp_';
defined('ABSPATH') || define('ABSPATH', __DIR__ . '/');
require_once ABSPATH . 'wp-settings.php';
"""


class WordPress(PhpSite):
    """MariaDB, and the files of the package."""

    def prepare(self):
        self.copy("/usr/share/wordpress")
        (self.folder / "site" / "wp-config.php").write_text(WP_CONFIG.format(folder=self.folder))
        (self.folder / "site" / "wp-content" / "uploads").mkdir(exist_ok=True)
        self.give("site")
        (self.folder / "data").mkdir()
        shutil.chown(self.folder / "data", "mysql", "mysql")
        data = f"--datadir={self.folder}/data"
        setup = ["mariadb-install-db", "--no-defaults", "--user=mysql", "--auth-root-authentication-method=normal", data]
        subprocess.run(setup, check=True, capture_output=True, timeout=300)
        shutil.chown(self.folder, "mysql")
        socket = self.folder / "mariadb.sock"
        self.start(["mariadbd", "--no-defaults", "--user=mysql", "--skip-networking", data, f"--socket={socket}",
                    f"--pid-file={self.folder}/mariadb.pid"])
        wait_for(socket.exists, "socket of MariaDB")
        create = ["mariadb", "--no-defaults", f"--socket={socket}", "-u", "root", "-e", "CREATE DATABASE wordpress"]
        subprocess.run(create, check=True, timeout=WAIT)


def click_through(site):
    yield "the first visit leads to the installation"
    site.page("/")
    assert "/wp-admin/install.php" in site.url, site.url
    yield "the form installs"
    form = {"weblog_title": "A check", "user_name": "admin", "admin_password": PASSWORD, "admin_password2": PASSWORD,
            "pw_weak": "1", "admin_email": "check@example.org", "Submit": "Install WordPress", "language": ""}
    page = site.page("/wp-admin/install.php?step=2", form)
    assert "WordPress has been installed" in page, page[-2000:]
    yield "the front page has a post and its style"
    page = site.page("/")
    assert "<title>A check" in page and "Hello world!" in page, page[:2000]
    styles = re.findall(rf'{site.origin}(/wp-[^"\'? ]+\.(?:css|js))', page)
    fields, _ = site.fetch("/wp-includes/css/dist/block-library/style.min.css")
    assert fields["Content-Type"].startswith("text/css") and fields["ETag"], fields
    for style in styles:
        site.fetch(style)
    yield "log in"
    site.page("/wp-login.php")
    page = site.page("/wp-login.php", {"log": "admin", "pwd": "wrong", "wp-submit": "Log In", "testcookie": "1"})
    assert "is incorrect" in page
    page = site.page("/wp-login.php", {"log": "admin", "pwd": PASSWORD, "wp-submit": "Log In", "testcookie": "1"})
    assert "Dashboard" in page and site.url.endswith("/wp-admin/"), site.url
    yield "a folder without a slash is redirected"
    site.page("/wp-admin")
    assert site.url.endswith("/wp-admin/"), site.url
    yield "pretty permalinks"
    page = site.page("/wp-admin/options-permalink.php")
    form = {"_wpnonce": value_of(page, "_wpnonce"), "_wp_http_referer": "/wp-admin/options-permalink.php",
            "selection": "custom", "permalink_structure": "/%year%/%monthnum%/%postname%/", "category_base": "",
            "tag_base": "", "submit": "Save Changes"}
    assert "Permalink structure updated" in site.page("/wp-admin/options-permalink.php", form)
    yield "publish a post"
    nonce = {"X-WP-Nonce": site.page("/wp-admin/admin-ajax.php?action=rest-nonce"), "Content-Type": "application/json"}
    post = {"title": "Größe & more", "content": "The <b>content</b> of the check.", "status": "publish"}
    created = json.loads(site.page("/wp-json/wp/v2/posts", json.dumps(post).encode(), nonce, status=201))
    assert re.search(r"/\d{4}/\d\d/grose-more/$|/\d{4}/\d\d/[^/]+/$", created["link"]), created["link"]
    assert "index.php" not in created["link"], created["link"]
    yield "read it"
    page = site.page(created["link"])
    assert "The <b>content</b> of the check." in page
    assert "Größe" in site.page("/?s=content") and "Größe" in site.page("/feed/")
    yield "upload a picture, and fetch it"
    fields = {**nonce, "Content-Type": "image/png", "Content-Disposition": 'attachment; filename="pixel.png"'}
    media = json.loads(site.page("/wp-json/wp/v2/media", picture(), fields, status=201))
    fields, content = site.fetch(media["source_url"])
    assert content == picture() and fields["Content-Type"] == "image/png", fields
    yield "comment"
    form = {"comment": "A comment of the check", "comment_post_ID": str(created["id"]), "comment_parent": "0",
            "submit": "Post Comment"}
    assert "A comment of the check" in site.page("/wp-comments-post.php", form)
    yield "a page that does not exist has the theme"
    assert "Page not found" in site.page("/2026/none/", status=404)
    yield "the source of the configuration is not sent"
    assert site.page("/wp-config.php") == ""
    shutil.copy(site.folder / "site" / "wp-config.php", site.folder / "site" / "wp-config.php.bak")
    assert "DB_NAME" not in site.page("/wp-config.php.bak", status=404)
    yield "change a setting"
    page = site.page("/wp-admin/options-general.php")
    form = {name: html.unescape(value) for name, value in re.findall(r'name="([^"]+)"[^>]* value="([^"]*)"', page)}
    form.update({"blogname": "Another title", "option_page": "general", "action": "update"})
    site.page("/wp-admin/options.php", form)
    assert "<title>Another title" in site.page("/")
    yield "log out"
    link = re.search(r'href="([^"]*action=logout[^"]*)"', site.page("/wp-admin/"))
    site.page(html.unescape(link.group(1)))
    site.page("/wp-admin/")
    assert "/wp-login.php" in site.url, site.url


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--driver", default="epoll")
    options = parser.parse_intermixed_args()
    with WordPress(options.binary, options.driver) as site:
        for step in click_through(site):
            print(step, flush=True)
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
