//! Where lines go, as something that can be written to and can fail.

mod file;
mod letter;
mod standard;

pub(crate) use letter::{Connect, Letters};

use super::health::Health;
use super::plan::{Destination, Level};
use super::rotate::Housekeeper;
use std::io;
use std::sync::Arc;

/// Something that takes lines. One thread alone uses it, which may wait.
pub(super) trait Outlet: Send {
    /// Writes some of these lines; how many bytes were taken.
    fn write(&mut self, lines: &[u8], level: Level) -> io::Result<usize>;

    /// Looks whether it is still what it was opened as, and opens it anew where not.
    fn look(&mut self) -> io::Result<Opened> {
        Ok(Opened::AsBefore)
    }

    /// Told before so many bytes of whole lines are written, when all that was begun is
    /// finished: the moment to go on in another place.
    fn make_room(&mut self, _len: usize) -> io::Result<()> {
        Ok(())
    }

    /// Opens it anew.
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether something was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opened {
    AsBefore,
    Anew,
}

/// What outlets need of those who open them.
#[derive(Clone, Copy)]
pub(super) struct Means<'a> {
    /// How the system's log is reached.
    pub(super) connect: Connect,
    /// Who deals with what was put aside.
    pub(super) housekeeper: &'a Housekeeper,
}

/// Opens a destination for the log of this kind, `access` or `error`.
pub(super) fn open(
    destination: &Destination,
    kind: &'static str,
    health: &Arc<Health>,
    means: Means<'_>,
) -> io::Result<Box<dyn Outlet>> {
    Ok(match destination {
        Destination::File { path, rotation } => {
            let rotating = match rotation {
                Some(rotation) => Some(means.housekeeper.take_on(path, *rotation, health)?),
                None => None,
            };
            Box::new(file::FileOutlet::open(path, rotating)?)
        }
        Destination::StandardOutput => Box::new(standard::Standard::Output),
        Destination::StandardError => Box::new(standard::Standard::Error),
        Destination::Nowhere => Box::new(standard::Standard::Nowhere),
        Destination::Syslog { path } => {
            Box::new(letter::LetterOutlet::open(letter::Form::Syslog, path, kind, means.connect)?)
        }
        Destination::Journal { path } => {
            Box::new(letter::LetterOutlet::open(letter::Form::Journal, path, kind, means.connect)?)
        }
    })
}
