//! A program with a configuration in its own folder.

use super::client::{Client, Response};
use super::program::{Exit, Program, run_to_exit, selvedge_command};
use super::tree::Tree;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder with a configuration.
pub(crate) struct Folder(Tree);

impl Folder {
    /// Creates a folder whose configuration is this text after a free port.
    pub(crate) fn new(text: &str) -> Self {
        let folder = Self(Tree::new());
        folder.configure(text);
        folder
    }

    /// Copies the example, with a free port.
    pub(crate) fn of_example() -> Self {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/sites");
        let folder = Self(Tree::new());
        copy(&example, folder.0.site());
        let text = folder.read("selvedge.kdl");
        let listen = "listen \"127.0.0.1:8080\"";
        assert!(text.contains(listen), "the example listens at the address in its text");
        folder.write("selvedge.kdl", &text.replace(listen, "listen \"127.0.0.1:0\""));
        folder
    }

    /// Copies a file of `examples/configurations` and the site that it serves, with a free port.
    pub(crate) fn of_configuration(file: &Path) -> Self {
        let site = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/site");
        let folder = Self(Tree::new());
        fs::create_dir_all(folder.path("examples/site")).expect("directories can be made");
        copy(&site, &folder.path("examples/site"));
        let text = fs::read_to_string(file).expect("the example is there");
        assert!(text.contains("listen \"127.0.0.1:8080\""), "the example listens at the address in its text");
        let text = text.replace("127.0.0.1:8080", "127.0.0.1:0").replace("\"../site", "\"examples/site");
        folder.write("selvedge.kdl", &text);
        folder
    }

    /// Replaces the configuration; the port stays.
    pub(crate) fn configure(&self, text: &str) {
        self.write("selvedge.kdl", &format!("listen \"127.0.0.1:0\"\nworkers 2\n{text}"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    pub(crate) fn write(&self, name: &str, content: &str) {
        self.0.write(name, content);
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns the complete lines of a log.
    pub(crate) fn lines(&self, name: &str) -> Vec<String> {
        let text = self.read(name);
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    pub(crate) fn serve(&self) -> Program {
        Program::start(selvedge_command().arg("run").arg("--config").arg(self.path("selvedge.kdl")))
    }

    /// Runs a command with the configuration until its end.
    pub(crate) fn run(&self, name: &str) -> Exit {
        run_to_exit(selvedge_command().arg(name).arg("--config").arg(self.path("selvedge.kdl")))
    }
}

/// Sends a request to a host, with these field lines, on a connection that stays open.
pub(crate) fn request(client: &mut Client, host: &str, request: &str, lines: &[&str]) -> Response {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    client.send(format!("{request} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n"));
    let method = request.split(' ').next().unwrap_or_default();
    client.receive(method).unwrap_or_else(|_| panic!("{request}: the connection ended before the response did"))
}

/// Sends a GET on a new connection.
pub(crate) fn get(program: &Program, host: &str, target: &str) -> Response {
    request(&mut program.connect(), host, &format!("GET {target}"), &[])
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("the example is there") {
        let entry = entry.expect("a folder can be read");
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().expect("it is there").is_dir() {
            fs::create_dir_all(&to).expect("directories can be made");
            copy(&from, &to);
        } else if from.file_name().is_some_and(|name| !name.to_string_lossy().contains(".log")) {
            fs::copy(&from, &to).expect("a file can be copied");
        }
    }
}
