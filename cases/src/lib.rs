//! Requests as raw bytes and the expected verdict on each: one text file for each RFC section.
//!
//! The files are test data. The tests pass each row to the protocol crate whole, byte by byte and at
//! random splits, and to a server over a socket. To test another case, add a row, not a function.
//!
//! # A row
//!
//! ```text
//! Content-Length with Transfer-Encoding is refused            RFC 9112 §6.3
//! > POST / HTTP/1.1
//! > Host: a
//! > Content-Length: 4
//! > Transfer-Encoding: chunked
//! >
//! = reject ContentLengthWithTransferEncoding 400 close
//! ```
//!
//! The first line has a unique name, at least two spaces, and the section that requires the verdict.
//! Then follow the bytes: a `>` line is the text after `> ` and CRLF, a `>-` line is the text after
//! `>- ` without a line end. Then follows one `=` line for each message, in order. Empty lines
//! separate rows. A line that begins with `#` is a comment.
//!
//! | verdict | meaning |
//! |---|---|
//! | `= accept METHOD TARGET [key=value]… [keep\|close]` | the application receives the request |
//! | `= reject NAME STATUS close` | the request is refused with the [`selvedge_proto::Reject`] of this name |
//! | `= answer STATUS [name: value]… [!name]… [body="…"] [keep\|close]` | the response of [`model`]; the brackets around a field are part of the row, and `[!name]` requires that the field is absent |
//! | `= wait` | the message is incomplete, and nothing in it is refused |
//!
//! The keys of `accept` are `version`, `host`, `path`, `query`, `content`, `trailers` and
//! `expect`; see [`verdict::accept_line`]. A row has only the keys that it checks. No bytes are read
//! after a reject or a `close`, so such a verdict is the last of its row.
//!
//! # Escapes
//!
//! In the bytes and in the values of a verdict:
//!
//! | escape | bytes |
//! |---|---|
//! | `\r` `\n` `\t` `\0` | CR, LF, tab, NUL |
//! | `\\` `\"` | a backslash, a quotation mark |
//! | `\xHH` | the byte HH |
//! | `\{text\*COUNT\}` | the text, COUNT times; it may contain the escapes above |

#![forbid(unsafe_code)]

mod check;
pub mod escape;
pub mod message_reader;
pub mod model;
mod rows;
pub mod verdict;

pub use check::check;
pub use message_reader::{MessageReader, read};
pub use rows::{Case, CaseError, load_cases, parse_cases};
pub use verdict::Verdict;
