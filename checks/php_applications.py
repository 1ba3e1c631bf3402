#!/usr/bin/env python3
"""Installs DokuWiki, MediaWiki and Roundcube behind routes with `php`, and clicks through them.

    python3 checks/php_applications.py target/release/selvedge [--driver epoll|io_uring] [APPLICATION ...]

Needs root, and Debian's packages php-fpm, php-sqlite3, php-intl, dokuwiki, mediawiki, roundcube, roundcube-sqlite3 and
dovecot-imapd. Their files are copied to a temporary folder, and databases, PHP-FPM, Dovecot and a small SMTP server run in
it, so the services of the system are not touched.
"""
import argparse
import asyncio
import contextlib
import html
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import threading
import uuid

from clients import free_address, wait_until_it_listens
from php_site import PASSWORD, WAIT, PhpSite, picture, value_of

FORM_TAG = re.compile(r"<(?:input|textarea)[^>]*>")
MAIL_USER = "weaver@example.org"
DOVECOT = """
base_dir = {folder}/dovecot
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
log_path = {folder}/dovecot.log
first_valid_uid = 1
mail_location = maildir:{folder}/mail
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=www-data gid=www-data home={folder}/mail
}}
"""
ROUNDCUBE = """<?php
$config = ['db_dsnw' => 'sqlite:///{folder}/roundcube.db', 'imap_host' => '{imap}', 'smtp_host' => '{smtp}', 'smtp_user' => '',
    'des_key' => 'a key of 24 characters..', 'plugins' => [], 'skin' => 'elastic', 'enable_spellcheck' => false,
    'temp_dir' => '{folder}/temporary', 'log_dir' => '{folder}/temporary'];
"""


def hidden_values(page):
    """Returns the values of the hidden fields of a page."""
    values = {}
    for tag in FORM_TAG.findall(page):
        attributes = dict((name, html.unescape(value)) for name, _, value in re.findall(r"""([\w-]+)=(["'])(.*?)\2""", tag))
        if attributes.get("type") == "hidden" and "name" in attributes:
            values[attributes["name"]] = attributes.get("value", "")
    return values


def multipart(values, file_field, name, content):
    """Returns the content of a form with a file, and its fields."""
    boundary = uuid.uuid4().hex
    parts = [f'--{boundary}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in values.items()]
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{file_field}"; filename="{name}"\r\nContent-Type: image/png\r\n\r\n'
    body = "".join(parts).encode() + head.encode() + content + f"\r\n--{boundary}--\r\n".encode()
    return body, {"Content-Type": f"multipart/form-data; boundary={boundary}"}


class DokuWiki(PhpSite):
    """The layout of its own archive: configuration and data are beneath the root, and routes deny them."""

    routes = """
    route "/conf/*" "/data/*" "/inc/*" "/bin/*" "/vendor/*" {{ deny status=404; }}
    route "/*" {{ php "unix:{folder}/fpm.sock"; }}"""

    def prepare(self):
        self.copy("/usr/share/dokuwiki")
        for source, name in (("/etc/dokuwiki", "conf"), ("/var/lib/dokuwiki/data", "data")):
            subprocess.run(["cp", "-rL", source, self.folder / "site" / name], check=True, stderr=subprocess.DEVNULL)
        # Of the package, which has its folders elsewhere and is installed already.
        (self.folder / "site/inc/preload.php").unlink()
        for name in ("local.php", "users.auth.php", "acl.auth.php", "plugins.local.php"):
            (self.folder / "site/conf" / name).unlink(missing_ok=True)
        self.give("site")


def click_dokuwiki(site):
    yield "the form installs"
    page = site.page("/install.php")
    form = {**hidden_values(page), "d[title]": "A check", "d[acl]": "on", "d[superuser]": "admin", "d[fullname]": "The Admin",
            "d[email]": "check@example.org", "d[password]": PASSWORD, "d[confirm]": PASSWORD, "d[policy]": "0",
            "d[license]": "cc-by-sa", "submit": "Save"}
    assert "was finished successfully" in (page := site.page("/install.php", form)), page[-3000:]
    local = site.folder / "site/conf/local.php"
    local.write_text(local.read_text() + "\n$conf['userewrite'] = 2;\n$conf['useslash'] = 1;\n")
    yield "log in"
    page = site.page("/doku.php/start?do=login")
    form = {**hidden_values(page), "u": "admin", "p": "wrong", "do": "login", "id": "start"}
    assert "The Admin" not in site.page("/doku.php/start?do=login", form, status=403)
    page = site.page("/doku.php/start?do=login", {**form, "p": PASSWORD})
    assert "The Admin" in page, page[:3000]
    yield "write a page, and read it at its pretty URL"
    form = hidden_values(site.page("/doku.php/wool/dyeing?do=edit"))
    form.update({"wikitext": "====== Größe & more ======\nThe **content** of the check.", "summary": "new", "do[save]": "Save"})
    site.page("/doku.php/wool/dyeing", form)
    page = site.page("/doku.php/wool/dyeing")
    assert "Größe &amp; more</h1>" in page and "<strong>content</strong>" in page, page[-4000:]
    assert f"{site.origin}/wool/dyeing" in page or 'href="/doku.php/wool/dyeing' in page, "the links of pages are no pretty URLs"
    yield "edit it again; the old version is kept"
    form = hidden_values(site.page("/doku.php/wool/dyeing?do=edit"))
    form.update({"wikitext": "====== Größe ======\nAnother text.", "summary": "changed", "do[save]": "Save"})
    site.page("/doku.php/wool/dyeing", form)
    assert "Another text." in site.page("/doku.php/wool/dyeing")
    assert "changed" in site.page("/doku.php/wool/dyeing?do=revisions")
    yield "upload a picture, and fetch it"
    page = site.page("/lib/exe/mediamanager.php?ns=wool")
    values = {**hidden_values(page), "ns": "wool", "mediaid": "pixel.png"}
    body, fields = multipart(values, "upload", "pixel.png", picture())
    site.page("/lib/exe/mediamanager.php?ns=wool", body, fields=fields)
    fields, content = site.fetch("/lib/exe/fetch.php/wool/pixel.png")
    assert content == picture() and fields["Content-Type"] == "image/png", fields.items()
    site.page("/lib/exe/detail.php/wool/pixel.png")
    yield "export, search, styles and scripts"
    assert "Another text." in site.page("/doku.php/wool/dyeing?do=export_raw")
    # Pages run its background tasks, of which one adds to the index.
    for _ in range(5):
        site.fetch("/lib/exe/taskrunner.php?id=wool:dyeing")
    assert "Größe" in site.page("/doku.php/start?do=search&q=another")
    page = site.page("/doku.php/start")
    for path in re.findall(r'(?:href|src)="(/lib/exe/(?:css|js)\.php[^"]*)"', page):
        assert site.fetch(html.unescape(path))[1]
    yield "a page that does not exist, and files that are never sent"
    assert "does not exist yet" in site.page("/doku.php/none")
    for path in ("/conf/users.auth.php", "/data/pages/wool/dyeing.txt", "/inc/init.php", "/conf/local.php.bak"):
        assert "admin" not in site.page(path, status=404), path
    yield "log out"
    token = value_of(site.page("/doku.php/start?do=edit"), "sectok")
    site.page(f"/doku.php/start?do=logout&sectok={token}")
    assert "The Admin" not in site.page("/doku.php/start")


class MediaWiki(PhpSite):
    routes = """
    route "/includes/*" "/maintenance/*" "/vendor/*" "/languages/*" "/images/**/*.php" {{ deny status=404; }}
    route "/*" {{ php "unix:{folder}/fpm.sock"; }}"""

    def prepare(self):
        self.copy("/usr/share/mediawiki")
        (self.folder / "data").mkdir()
        self.give("data")
        arguments = ["--dbtype", "sqlite", "--dbpath", self.folder / "data", "--dbname", "wiki", "--server", self.origin,
                     "--scriptpath", "", "--pass", PASSWORD, "A check", "Admin"]
        ended = subprocess.run(["php", "maintenance/install.php", *arguments], cwd=self.folder / "site", user="www-data",
                               capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
        settings = self.folder / "site/LocalSettings.php"
        more = '\n$wgArticlePath = "/wiki/$1"; $wgEnableUploads = true; $wgShowExceptionDetails = true; $wgJobRunRate = 0;\n'
        settings.write_text(settings.read_text() + more)


def form_of(page):
    """Returns the hidden values of a page, without the title, which is that of its search form as well."""
    return {name: value for name, value in hidden_values(page).items() if name != "title"}


def click_mediawiki(site):
    yield "the front page is at a pretty URL, with its styles"
    page = site.page("/")
    assert site.url == f"{site.origin}/wiki/Main_Page" and "MediaWiki has been installed" in page, site.url
    styles = re.findall(r'href="(/load\.php\?[^"]*)"', page)
    assert styles, page[:3000]
    for style in styles:
        fields, content = site.fetch(html.unescape(style))
        assert fields["Content-Type"].startswith("text/css") and content, style
    yield "log in"
    form = {**form_of(site.page("/wiki/Special:UserLogin")), "wpName": "Admin", "wpPassword": "wrong", "wploginattempt": "Log in"}
    page = site.page("/index.php?title=Special:UserLogin", form)
    assert "Incorrect username or password" in page, re.sub(r"<[^>]*>", " ", page)[-6000:]
    form = {**form_of(site.page("/wiki/Special:UserLogin")), "wpName": "Admin", "wpPassword": PASSWORD, "wploginattempt": "Log in"}
    site.page("/index.php?title=Special:UserLogin", form)
    assert "Log out" in site.page("/wiki/Main_Page")
    yield "write a page, and read it at its pretty URL"
    form = form_of(site.page("/index.php?title=Wool/Größe_%26_more&action=edit".replace("ö", "%C3%B6").replace("ß", "%C3%9F")))
    form.update({"wpTextbox1": "The '''content''' of the check.", "wpSummary": "new", "wpSave": "Save page"})
    site.page("/index.php?title=Wool/Gr%C3%B6%C3%9Fe_%26_more&action=submit", form)
    assert site.url.endswith("/wiki/Wool/Gr%C3%B6%C3%9Fe_%26_more"), site.url
    page = site.page("/wiki/Wool/Gr%C3%B6%C3%9Fe_%26_more")
    assert "The <b>content</b> of the check." in page and "Größe &amp; more" in page, page[:3000]
    yield "edit it again; the history has both"
    form = form_of(site.page("/index.php?title=Wool/Gr%C3%B6%C3%9Fe_%26_more&action=edit"))
    form.update({"wpTextbox1": "Another text.", "wpSummary": "changed", "wpSave": "Save page"})
    assert "Another text." in site.page("/index.php?title=Wool/Gr%C3%B6%C3%9Fe_%26_more&action=submit", form)
    assert "changed" in site.page("/index.php?title=Wool/Gr%C3%B6%C3%9Fe_%26_more&action=history")
    yield "upload a picture, and fetch it"
    values = {**form_of(site.page("/wiki/Special:Upload")), "wpSourceType": "file", "wpDestFile": "Pixel.png",
              "wpUploadDescription": "A pixel", "wpIgnoreWarning": "1", "wpUpload": "Upload file"}
    body, fields = multipart(values, "wpUploadFile", "pixel.png", picture())
    page = site.page("/wiki/Special:Upload", body, fields=fields)
    found = re.search(r'href="(/images/[^"]*/Pixel\.png)"', page)
    assert found, page[-5000:]
    fields, content = site.fetch(found.group(1))
    assert content == picture() and fields["Content-Type"] == "image/png" and fields["ETag"], fields.items()
    yield "the interfaces of programs, one of them by PATH_INFO"
    got = json.loads(site.page("/api.php?action=query&list=allpages&format=json"))
    assert any("Größe" in each["title"] for each in got["query"]["allpages"]), got
    got = json.loads(site.page("/rest.php/v1/page/Main_Page"))
    assert "MediaWiki has been installed" in got["source"], got
    yield "a page that does not exist, and files that are never sent"
    assert "no text in this page" in site.page("/wiki/None", status=404)
    assert site.page("/LocalSettings.php", status=200) == "" or "wgDB" not in site.page("/LocalSettings.php")
    (site.folder / "site/images/own.php").write_text("<?php echo 'attacker';")
    for path in ("/images/own.php", "/maintenance/install.php", "/includes/DefaultSettings.php"):
        site.page(path, status=404)
    yield "log out"
    form = form_of(site.page("/wiki/Special:UserLogout"))
    site.page("/wiki/Special:UserLogout", form)
    assert "Log out" not in site.page("/wiki/Main_Page")


class SmtpServer:
    """Delivers what it receives to a Maildir, on a thread."""

    def __init__(self, maildir):
        self.maildir, self.address, self.count = maildir, free_address(), 0
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        host, port = self.address.split(":")
        asyncio.run_coroutine_threadsafe(asyncio.start_server(self.serve, host, int(port)), self.loop).result(WAIT)

    async def serve(self, reader, writer):
        writer.write(b"220 check\r\n")
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while line := await reader.readuntil(b"\r\n"):
                command = line.split()[0].upper() if line.split() else b""
                if command == b"DATA":
                    writer.write(b"354 go on\r\n")
                    self.deliver((await reader.readuntil(b"\r\n.\r\n"))[:-3])
                writer.write(b"221 bye\r\n" if command == b"QUIT" else b"250 fine\r\n")
        writer.close()

    def deliver(self, message):
        self.count += 1
        path = self.maildir / "new" / f"{self.count}.check"
        path.write_bytes(message.replace(b"\r\n..", b"\r\n."))
        shutil.chown(path, "www-data", "www-data")


class Roundcube(PhpSite):
    root = "roundcube/public_html"

    def prepare(self):
        subprocess.run(["cp", "-rL", "/var/lib/roundcube", self.folder / "roundcube"], stderr=subprocess.DEVNULL)
        for name in ("cur", "new", "tmp"):
            (self.folder / "mail" / name).mkdir(parents=True)
        self.smtp = SmtpServer(self.folder / "mail")
        imap = free_address()
        settings = DOVECOT.format(folder=self.folder, port=imap.split(":")[1], password=PASSWORD.replace(" ", "-"))
        (self.folder / "dovecot.conf").write_text(settings)
        self.start(["dovecot", "-F", "-c", self.folder / "dovecot.conf"])
        configuration = ROUNDCUBE.format(folder=self.folder, imap=imap, smtp=self.smtp.address)
        (self.folder / "roundcube/config/config.inc.php").write_text(configuration)
        with sqlite3.connect(self.folder / "roundcube.db") as database:
            database.executescript((self.folder / "roundcube/SQL/sqlite.initial.sql").read_text())
        # SQLite creates files beside its database.
        shutil.chown(self.folder, "www-data")
        for name in ("roundcube", "roundcube.db", "mail"):
            self.give(name)
        wait_until_it_listens(imap)


def click_roundcube(site):
    yield "the form to log in, with its style and scripts"
    page = site.page("/")
    files = re.findall(r'(?:href|src)="((?:skins|program|plugins)/[^"]*)"', page)
    assert any(".css" in path for path in files) and any(".js" in path for path in files), page[:3000]
    for path in files:
        assert site.fetch("/" + html.unescape(path))[1], path
    yield "log in"
    form = {**hidden_values(page), "_user": MAIL_USER, "_pass": "wrong"}
    site.page("/?_task=login", form, status=401)
    form = {**hidden_values(site.page("/")), "_user": MAIL_USER, "_pass": PASSWORD.replace(" ", "-")}
    page = site.page("/?_task=login", form)
    assert "_task=mail" in site.url and "INBOX" in page, site.url
    token = re.search(r'"request_token":"(\w+)"', page).group(1)
    yield "write a message with an attachment, and send it"
    page = site.page("/?_task=mail&_action=compose")
    values = hidden_values(page)
    sender = re.search(r'<option value="(\d+)"[^>]*>[^<]*' + re.escape(MAIL_USER), page).group(1)
    upload = {"_token": token, "_id": values["_id"], "_uploadid": "upload1", "_remote": "1", "_from": "compose"}
    body, fields = multipart(upload, "_attachments[]", "pixel.png", picture())
    got = site.page(f"/?_task=mail&_action=upload&_remote=1&_id={values['_id']}&_uploadid=upload1", body, fields=fields)
    assert "pixel.png" in got, got
    form = {**values, "_from": sender, "_to": MAIL_USER, "_subject": "Größe & more", "_message": "The content of the check."}
    got = site.page("/?_task=mail&_action=send", form)
    assert "sent_successfully" in got or "Message sent successfully" in got, got[-2000:]
    assert site.smtp.count == 1
    yield "read it, and fetch the attachment"
    got = site.page("/?_task=mail&_action=list&_mbox=INBOX&_remote=1", fields={"X-Requested-With": "XMLHttpRequest", "X-Roundcube-Request": token})
    assert "Größe & more" in json.loads(got)["exec"].encode().decode("unicode_escape", "ignore") or "more" in got, got[:2000]
    page = site.page("/?_task=mail&_action=show&_uid=1&_mbox=INBOX")
    assert "Größe &amp; more" in page and "The content of the check." in page, page[-4000:]
    fields, content = site.fetch("/?_task=mail&_action=get&_mbox=INBOX&_uid=1&_part=2&_download=1&_token=" + token)
    assert content == picture() and "pixel.png" in fields["Content-Disposition"], fields.items()
    yield "change the identity"
    page = site.page(f"/?_task=settings&_action=edit-identity&_iid={sender}&_framed=1")
    form = {**hidden_values(page), "_name": "The Weaver", "_email": MAIL_USER, "_standard": "1"}
    site.page("/?_task=settings&_action=save-identity&_framed=1", form)
    assert "The Weaver" in site.page("/?_task=mail&_action=compose")
    yield "files that are never sent"
    for path in ("/config/config.inc.php", "/program/include/iniset.php", "/SQL/sqlite.initial.sql"):
        assert "des_key" not in site.page(path) and "CREATE TABLE" not in site.page(path), path
    site.page("/../config/config.inc.php", status=400)
    yield "log out"
    site.page(f"/?_task=logout&_token={token}")
    assert 'name="_pass"' in site.page("/?_task=mail")


APPLICATIONS = {
    "dokuwiki": (DokuWiki, click_dokuwiki), "mediawiki": (MediaWiki, click_mediawiki), "roundcube": (Roundcube, click_roundcube),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("applications", nargs="*", metavar="APPLICATION", help=", ".join(APPLICATIONS))
    parser.add_argument("--driver", default="epoll")
    options = parser.parse_intermixed_args()
    for name in options.applications or APPLICATIONS:
        site_type, click_through = APPLICATIONS[name]
        with site_type(options.binary, options.driver) as site:
            for step in click_through(site):
                print(f"{name}: {step}", flush=True)
    print("ok")


if __name__ == "__main__":
    sys.exit(main())
