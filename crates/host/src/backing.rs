//! Files that back parts of a process's address space.

use virtlens_model::facts::{Backing, Piece, RamPiece};

use crate::error::Error;
use crate::root::{HostRoot, read};

/// A VMM has some hundred mappings of 100 bytes; `vm.max_map_count` allows 65 530.
const MAPS: usize = 16 << 20;

/// Splits `pieces` of the process `pid` by their backing, according to its
/// /proc/PID/maps. Unmapped parts are omitted. A piece stays whole if its mappings are
/// contiguous in memory and in the file.
///
/// # Errors
/// If the process is gone, or access is denied.
pub fn backing(root: &HostRoot, pid: u32, pieces: &[Piece]) -> Result<Vec<RamPiece>, Error> {
    let path = root.proc_of(pid, "maps");
    Ok(parse_backing(&read(&path, MAPS)?, pieces))
}

/// Splits `pieces` as [`backing`] does, from the text of a `maps` file. Unparsable lines
/// are skipped.
pub fn parse_backing(maps: &[u8], pieces: &[Piece]) -> Vec<RamPiece> {
    let text = String::from_utf8_lossy(maps);
    let mappings: Vec<RamPiece> = text.lines().filter_map(parse_line).collect();
    split(pieces, &mappings)
}

/// The parts of `pieces` that lie in the mappings, which are sorted.
fn split(pieces: &[Piece], mappings: &[RamPiece]) -> Vec<RamPiece> {
    pieces
        .iter()
        .flat_map(|piece| split_one(*piece, mappings))
        .collect()
}

fn split_one(piece: Piece, mappings: &[RamPiece]) -> Vec<RamPiece> {
    let mut found: Vec<RamPiece> = Vec::new();
    for mapping in mappings {
        let start = piece.start.max(mapping.piece.start);
        let end = piece.end.min(mapping.piece.end);
        if start >= end {
            continue;
        }
        let file = mapping.file.map(|file| Backing {
            offset: file.offset + (start - mapping.piece.start),
            ..file
        });
        match found.last_mut() {
            Some(last) if follows(last, start, file) => last.piece.end = end,
            _ => found.push(RamPiece {
                piece: Piece { start, end },
                file,
            }),
        }
    }
    found
}

/// Whether a mapping at `start` continues `last`.
fn follows(last: &RamPiece, start: u64, file: Option<Backing>) -> bool {
    let expected = last.file.map(|file| Backing {
        offset: file.offset + (last.piece.end - last.piece.start),
        ..file
    });
    last.piece.end == start && expected == file
}

/// Paths of files that are memory: memfds (also of huge pages), tmpfs, hugetlbfs and the
/// kernel's own file for `MAP_HUGETLB` (`HUGETLB_ANON_FILE`, `include/linux/hugetlb.h`).
const IN_MEMORY: [&str; 4] = ["/memfd:", "/dev/shm/", "/dev/hugepages/", "/anon_hugepage"];

/// "start-end perms offset major:minor inode path" (`fs/proc/task_mmu.c`).
fn parse_line(line: &str) -> Option<RamPiece> {
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let shared = words.next()?.ends_with('s');
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode: u64 = words.next()?.parse().ok()?;
    let name = words.next().unwrap_or_default();
    let device = u32::try_from(hex(major)? << 20 | hex(minor)?).ok()?;
    let (start, end) = (hex(start)?, hex(end)?);
    // The kernel maps nothing beyond the maximum file offset.
    offset.checked_add(end.checked_sub(start)?)?;
    Some(RamPiece {
        piece: Piece { start, end },
        file: (inode != 0).then_some(Backing {
            // Data written to a private mapping is anonymous memory.
            in_memory: shared && IN_MEMORY.iter().any(|place| name.starts_with(place)),
            device,
            inode,
            offset,
        }),
    })
}

#[cfg(test)]
mod tests {
    use virtlens_model::facts::{Backing, Piece, RamPiece};

    use super::{parse_line, split};

    const MAPS: &str = "\
        10000-20000 rw-p 00000000 00:00 0                          [heap]\n\
        100000-200000 rw-s 00000000 00:01 77                       /memfd:ram (deleted)\n\
        200000-300000 rw-s 00100000 00:01 77                       /memfd:ram (deleted)\n\
        300000-380000 rw-s 00000000 00:01 78                       /memfd:ram (deleted)\n\
        400000-500000 rw-p 00000000 00:00 0 \n\
        500000-600000 rw-p 00000000 00:00 0 \n";

    fn piece(start: u64, end: u64) -> Piece {
        Piece { start, end }
    }

    fn file(inode: u64, offset: u64) -> Backing {
        Backing {
            in_memory: true,
            device: 1,
            inode,
            offset,
        }
    }

    #[test]
    fn pieces_are_split_by_file_and_joined_across_mappings() {
        let pieces = [piece(0x14_0000, 0x48_0000), piece(0x50_0000, 0x58_0000)];
        let mappings: Vec<RamPiece> = MAPS.lines().filter_map(parse_line).collect();
        let found = split(&pieces, &mappings);
        let expected = [
            (piece(0x14_0000, 0x30_0000), Some(file(77, 0x4_0000))),
            (piece(0x30_0000, 0x38_0000), Some(file(78, 0))),
            (piece(0x40_0000, 0x48_0000), None),
            (piece(0x50_0000, 0x58_0000), None),
        ];
        let expected = expected.map(|(piece, file)| RamPiece { piece, file });
        assert_eq!(found, expected);
    }

    #[test]
    fn devices_are_numbered_as_in_the_kernel() {
        let line = "7f0000000000-7f0000001000 rw-s 00001000 fd:0a 9 /a b c";
        let parsed = parse_line(line).and_then(|one| one.file);
        let expected = Backing {
            in_memory: false,
            device: 0xfd << 20 | 0x0a,
            inode: 9,
            offset: 0x1000,
        };
        assert_eq!(parsed, Some(expected));
        assert_eq!(parse_line("no mapping"), None);
    }

    /// A sandbox that emulates a kernel may write anything.
    #[test]
    fn mapping_with_invalid_range_is_rejected() {
        for (range, offset, is_one) in [
            ("1000-2000", "0", true),
            ("2000-1000", "0", false),
            ("0-ffffffffffffffff", "0", true),
            ("0-ffffffffffffffff", "1", false),
            ("0-1000", "fffffffffffff000", false),
        ] {
            let line = format!("{range} rw-s {offset} 00:01 7 /memfd:ram");
            assert_eq!(parse_line(&line).is_some(), is_one, "{line}");
        }
    }

    #[test]
    fn only_shared_memory_is_in_its_file() {
        for (perms, path, expected) in [
            ("rw-s", "/memfd:ram (deleted)", true),
            ("rw-p", "/memfd:ram (deleted)", false),
            ("rw-s", "/dev/shm/ram", true),
            ("rw-s", "/var/lib/ram", false),
        ] {
            let line = format!("10000-20000 {perms} 00000000 00:01 7 {path}");
            let file = parse_line(&line).and_then(|one| one.file);
            assert_eq!(file.map(|file| file.in_memory), Some(expected), "{line}");
        }
    }
}
