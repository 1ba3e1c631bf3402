//! What a configuration requires of the machine.

use super::model::{CertificateFiles, CgiPrograms, Program};
use super::position::Span;
use super::value::Address;
use std::path::PathBuf;

/// A requirement on the machine, and the position of its setting.
#[derive(Debug)]
pub(crate) struct MachineRequirement {
    pub(crate) kind: MachineRequirementKind,
    pub(crate) at: Span,
}

/// The kind of a requirement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MachineRequirementKind {
    /// A directory that can be read.
    Root(PathBuf),
    /// A directory that links may lead to.
    LinkTarget(PathBuf),
    /// A file that can be written or created.
    WritableFile(PathBuf),
    /// A folder in which a socket can be created.
    SocketDirectory(PathBuf),
    /// The pid file.
    PidFile(PathBuf),
    /// A certificate chain with its private key.
    Certificate(CertificateFiles),
    /// The folder of certificates that the server gets by itself.
    CertificateFolder(PathBuf),
    /// The certificates of authorities that sign those of clients.
    ClientAuthorities(PathBuf),
    /// A file with a secret of session tickets, or a folder of such files.
    TicketKeys(PathBuf),
    /// A program that the server runs.
    Program(Program),
    /// A folder with programs that the server runs for requests.
    CgiPrograms(CgiPrograms),
    /// A file with a key that the serving process reads.
    KeyFile(PathBuf),
    /// An htpasswd file.
    UserFile(PathBuf),
    /// An address of this machine, or a name of one.
    ListenAddress(Address),
    /// Programs that run for requests do not run as root. Their user; that of the server without a name.
    ProgramUser(Option<String>),
    User(String),
    Group(String),
    /// A file that requests get: a root, and the path below it. It may be added later.
    Page(PathBuf, String, PageUse),
    /// The settings of a site fit together; its number from 0.
    Site(usize),
    /// The settings of an upstream fit together; its number from 0.
    Upstream(usize),
    /// The settings of a route fit together; the numbers of its site and of the route.
    Route(usize, usize),
    /// The response to a request is as expected; the number of the expectation, from 0.
    Expectation(usize),
}

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PageUse {
    /// For an error status.
    Error,
    /// For page navigations to missing files.
    Fallback,
    /// For requests that a route rewrites.
    Rewrite,
}
