//! The reasons of responses that the log treats in a way of their own.

/// A wrong name or password. Each one has a line of its own in the error log, for programs that block clients.
#[cfg(feature = "configuration")]
pub(crate) const WRONG_PASSWORD: &str = "wrong user name or password";

/// An attempt that is refused after too many wrong passwords. Each one has a line of its own, too.
#[cfg(feature = "configuration")]
pub(crate) const TOO_MANY_WRONG_PASSWORDS: &str = "too many wrong passwords of this client or for this user";

/// A wrong name or password of a client that would have been refused without `dry-run`. It has a line of its own, too.
#[cfg(feature = "configuration")]
pub(crate) const WRONG_PASSWORD_DRY_RUN: &str =
    "wrong user name or password, after too many of this client or for this user (dry run)";

/// A path with a link that is not followed.
pub(crate) const LINK_OUT: &str = "a symbolic link leads out of the root, to no folder of `link-targets`";

/// A directory that is neither listed nor has an index.
pub(crate) const NO_INDEX: &str = "the directory has no index file; `listing`, or `serve --listing`, would list it";

/// Precompressed files that are not sent. The binary digits of a place, counted from 1, are those of `Coding::ALL`.
pub(crate) const OUTDATED: [&str; 7] = [
    "the .br file is older than the file that was compressed, so it is not sent",
    "the .zst file is older than the file that was compressed, so it is not sent",
    "the .br and .zst files are older than the file that was compressed, so they are not sent",
    "the .gz file is older than the file that was compressed, so it is not sent",
    "the .br and .gz files are older than the file that was compressed, so they are not sent",
    "the .zst and .gz files are older than the file that was compressed, so they are not sent",
    "the .br, .zst and .gz files are older than the file that was compressed, so they are not sent",
];

/// Whether each response with the reason has a line of its own.
#[cfg(feature = "program")]
pub(crate) fn has_own_line(reason: &str) -> bool {
    // A precompressed file is reported once.
    matches!(reason, WRONG_PASSWORD | WRONG_PASSWORD_DRY_RUN | TOO_MANY_WRONG_PASSWORDS) || OUTDATED.contains(&reason)
}

/// Whether the reason is about the files of a site, which may be as they are meant to be.
#[cfg(feature = "program")]
pub(crate) fn is_about_files(reason: &str) -> bool {
    matches!(reason, LINK_OUT | NO_INDEX) || OUTDATED.contains(&reason)
}
