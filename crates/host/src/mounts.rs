//! Parses the mount points of cgroup file systems: /proc/self/mountinfo.

/// A mounted cgroup hierarchy, v1 or v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Whether it is the unified hierarchy (`cgroup2`).
    pub unified: bool,
    /// The cgroup at the mount point, relative to this process's cgroup namespace: "/";
    /// "/docker/ID" for a part of the hierarchy; "/../.." for a mount that starts above
    /// the namespace.
    pub root: String,
    /// Mount point, as this process sees it.
    pub point: String,
    /// The controllers of a v1 hierarchy; empty for a named one ("name=systemd") and for
    /// v2, which lists them in other files.
    pub controllers: Vec<String>,
}

impl CgroupMount {
    /// Number of levels between the mount's root and this process's cgroup namespace
    /// below it.
    pub fn levels_above(&self) -> usize {
        self.root.split('/').filter(|name| *name == "..").count()
    }

    /// Sort key: mounts that show more of the hierarchy come first.
    pub(crate) fn narrowness(&self) -> (bool, std::cmp::Reverse<usize>, usize) {
        let above = self.levels_above();
        let is_part = above == 0 && self.root != "/";
        (is_part, std::cmp::Reverse(above), self.point.len())
    }
}

/// Parses the cgroup mounts of a `mountinfo` file, in file order. Lines of other file
/// systems and unparsable lines are skipped.
pub fn parse_mountinfo(bytes: &[u8]) -> Vec<CgroupMount> {
    bytes
        .split(|byte| *byte == b'\n')
        .filter_map(|line| parse_line(std::str::from_utf8(line).ok()?))
        .collect()
}

/// Parses one line: `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS…] - TYPE SOURCE
/// SUPER_OPTIONS` (`show_mountinfo` in `fs/proc_namespace.c`).
fn parse_line(line: &str) -> Option<CgroupMount> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut file_system = file_system.split(' ');
    let unified = match file_system.next()? {
        "cgroup2" => true,
        "cgroup" => false,
        _ => return None,
    };
    let options = file_system.nth(1)?;
    let mut mount = mount.split(' ');
    let root = unescape(mount.nth(3)?)?;
    let point = unescape(mount.next()?)?;
    let is_controller = |option: &&str| !matches!(*option, "rw" | "ro") && !option.contains('=');
    let controllers = if unified { "" } else { options };
    Some(CgroupMount {
        unified,
        root,
        point,
        controllers: controllers
            .split(',')
            .filter(|option| !option.is_empty())
            .filter(is_controller)
            .map(str::to_owned)
            .collect(),
    })
}

/// Reverses `mangle_path`, which writes blanks, backslashes and "#" as a backslash and
/// three octal digits.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escape = after.split_at_checked(3).filter(|_| *first == b'\\');
        let escaped = escape.and_then(|(digits, behind)| Some((octal(digits)?, behind)));
        let (byte, behind) = escaped.unwrap_or((*first, after));
        bytes.push(byte);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

fn octal(digits: &[u8]) -> Option<u8> {
    // `from_str_radix` accepts a sign, which no escape has.
    digits.iter().all(u8::is_ascii_digit).then_some(())?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::parse_mountinfo;

    #[test]
    fn cgroup_mounts_are_picked_from_the_table() {
        let table = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            31 23 0:28 / /sys/fs/cgroup ro shared:9 - tmpfs tmpfs ro,mode=755\n\
            32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:10 master:2 - cgroup cgroup rw,cpu,cpuacct\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
            41 31 0:38 /../.. /host\\040root/\\+12cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n\
            broken line\n42 1 - cgroup\n";
        let mounts = parse_mountinfo(table);
        assert_eq!(mounts.len(), 3);
        assert_eq!(mounts[0].controllers, ["cpu", "cpuacct"]);
        assert_eq!(mounts[0].point, "/sys/fs/cgroup/cpu,cpuacct");
        assert!(mounts[2].unified && mounts[2].controllers.is_empty());
        assert_eq!(mounts[2].point, "/host root/\\+12cgroup");
        assert_eq!(mounts[2].levels_above(), 2);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse_mountinfo(&bytes);
        }

        #[test]
        fn no_line_panics(root in "[ -~]{0,20}", point in "[ -~]{0,20}", rest in "[ -~]{0,30}") {
            let _ = parse_mountinfo(
                format!("1 2 0:3 {root} {point} rw - cgroup {rest}").as_bytes(),
            );
        }
    }
}
