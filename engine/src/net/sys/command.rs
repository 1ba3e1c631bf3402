//! Limits of a program, which hold from its first instruction.

use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The limits of a program and of each process that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramLimits {
    /// Bytes of address space.
    pub memory_bytes_max: u64,
    /// Seconds of processor time. The kernel kills the program beyond it.
    pub cpu_seconds_max: u64,
}

/// Limits what a command starts. It gets no core file either, and ends with the thread that starts it. A lower limit of this
/// process stays.
pub fn limit_program(command: &mut Command, limits: ProgramLimits) {
    let limits =
        [(Resource::As, limits.memory_bytes_max), (Resource::Cpu, limits.cpu_seconds_max), (Resource::Core, 0)];
    let set = move || -> io::Result<()> {
        for (resource, bound) in limits {
            let bound = getrlimit(resource).maximum.map_or(bound, |maximum| maximum.min(bound));
            setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound) })?;
        }
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: the closure runs between `fork` and `exec`. It makes system calls only, and neither allocates nor takes a
    // lock.
    unsafe { command.pre_exec(set) };
}

/// Keeps what this process has inherited from the programs that it starts: of all descriptors, they get the standard streams
/// only. Other descriptors are inherited from whatever has started the server, and may lead to files that the user of the
/// programs cannot open.
///
/// # Errors
/// If the system refuses it.
pub fn hide_inherited_descriptors() -> io::Result<()> {
    // SAFETY: the call takes numbers and accesses no memory. Owners keep their descriptors, with one more flag.
    // Not every C library has a function for it.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn programs_get_no_inherited_descriptor() {
        let inherited = std::fs::File::open("/dev/null").unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let open_in_program = || {
            let script = format!("test -e /proc/self/fd/{}", inherited.as_raw_fd());
            Command::new("/bin/sh").args(["-c", &script]).status().unwrap().success()
        };
        assert!(open_in_program());
        hide_inherited_descriptors().unwrap();
        assert!(!open_in_program());
    }

    #[test]
    fn limits_hold_from_the_first_instruction() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "ulimit -v; ulimit -Hv; ulimit -t; ulimit -c"]);
        limit_program(&mut command, ProgramLimits { memory_bytes_max: 512 << 20, cpu_seconds_max: 77 });
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "524288\n524288\n77\n0\n");
        // The loader of a program does not fit into a page, so the program cannot even begin.
        let mut command = Command::new("/bin/echo");
        limit_program(&mut command, ProgramLimits { memory_bytes_max: 4096, cpu_seconds_max: 1 });
        let has_begun = command.output().is_ok_and(|output| output.status.success());
        assert!(!has_begun);
    }
}
