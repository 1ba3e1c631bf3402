//! How much memory this process may have: the machine's, or what its control groups leave of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are: those of all controllers, the same beside the older kind, and the older kind's of memory.
const UNIFIED: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
const MEMORY: &str = "/sys/fs/cgroup/memory";
/// What bounds a group's memory: what it may not have, and what slows it down (cgroups(7)).
const UNIFIED_BOUNDS: [&str; 2] = ["memory.max", "memory.high"];
const MEMORY_BOUNDS: [&str; 1] = ["memory.limit_in_bytes"];

/// Bytes that this process may have at the most, as things are now.
pub(super) fn bytes_max() -> u64 {
    let machine = rustix::system::sysinfo();
    let machine = u64::from(machine.mem_unit).saturating_mul(machine.totalram as u64);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    bounds(&groups, |path| fs::read_to_string(path).ok()).fold(machine, u64::min)
}

/// The bounds that hold for a process in these groups (`/proc/PID/cgroup`). Those of every group around its own
/// hold, too, and where a container sees only its part of them, that is their root.
fn bounds(groups: &str, read: impl Fn(&Path) -> Option<String>) -> impl Iterator<Item = u64> {
    let files = groups.lines().flat_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (roots, bounds): (&[&str], &[&str]) = match controllers {
            "" => (&UNIFIED, &UNIFIED_BOUNDS),
            _ if controllers.split(',').any(|controller| controller == "memory") => (&[MEMORY], &MEMORY_BOUNDS),
            _ => (&[], &[]),
        };
        let group = Path::new(group.trim_start_matches('/'));
        let folders = roots.iter().flat_map(|root| group.ancestors().map(|group| Path::new(root).join(group)));
        folders.flat_map(|folder| bounds.iter().map(move |bound| folder.join(bound))).collect::<Vec<PathBuf>>()
    });
    // A group without a bound says `max`.
    files.filter_map(move |file| read(&file)?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_around_a_process_bounds_it() {
        type Files = &'static [(&'static str, &'static str)];
        let cases: &[(&str, Files, &[u64])] = &[
            // No groups, and none that says anything.
            ("", &[], &[]),
            ("0::/\n", &[], &[]),
            ("0::/a\n", &[("/sys/fs/cgroup/a/memory.max", "max\n")], &[]),
            // One kind for all controllers.
            (
                "0::/system.slice/selvedge.service\n",
                &[
                    ("/sys/fs/cgroup/system.slice/selvedge.service/memory.max", "104857600\n"),
                    ("/sys/fs/cgroup/system.slice/selvedge.service/memory.high", "83886080\n"),
                    ("/sys/fs/cgroup/system.slice/memory.max", "73400320\n"),
                    ("/sys/fs/cgroup/other/memory.max", "1\n"),
                ],
                &[104_857_600, 83_886_080, 73_400_320],
            ),
            // A container, which sees its own group as the root, by whatever name.
            ("0::/\n", &[("/sys/fs/cgroup/memory.max", "52428800\n")], &[52_428_800]),
            (
                "4:memory:/docker/5f2e\n0::/docker/5f2e\n",
                &[("/sys/fs/cgroup/memory/memory.limit_in_bytes", "41943040\n")],
                &[41_943_040],
            ),
            // The older kind, with controllers together and beside the newer.
            (
                "9:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b:c\n0::/\n",
                &[
                    ("/sys/fs/cgroup/memory/a/b:c/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "209715200\n"),
                    ("/sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "2\n"),
                ],
                &[9_223_372_036_854_771_712, 209_715_200],
            ),
            ("4:memory:/\n0::/a\n", &[("/sys/fs/cgroup/unified/a/memory.max", "33554432\n")], &[33_554_432]),
            // What makes no sense bounds nothing.
            ("memory\n:::\n4:memory\n0::/a", &[("/sys/fs/cgroup/a/memory.max", "-1\n")], &[]),
        ];
        for (groups, files, expected) in cases {
            let read = |path: &Path| {
                files.iter().find(|(file, _)| Path::new(file) == path).map(|(_, content)| (*content).to_owned())
            };
            assert_eq!(bounds(groups, read).collect::<Vec<_>>(), *expected, "{groups:?}");
        }
    }

    #[test]
    fn this_process_may_have_some() {
        assert!(bytes_max() > 0);
    }
}
