//! Memory mappings of a process.

use virtlens_host::parse_backing;
use virtlens_model::facts::Piece;

/// `data` is the content of a `maps` file.
pub fn maps(data: &[u8]) {
    let piece = |start, end| Piece { start, end };
    for wanted in [
        piece(0, u64::MAX),
        piece(0x7f00_0000_0000, 0x7f40_0000_0000),
        piece(0x1000, 0x2000),
        piece(5, 5),
        piece(6, 5),
    ] {
        for found in parse_backing(data, &[wanted]) {
            let found_piece = found.piece;
            assert!(found_piece.start < found_piece.end, "{found:?}");
            assert!(wanted.start <= found_piece.start && found_piece.end <= wanted.end);
            assert!(found.file.is_none_or(|file| file.inode != 0));
        }
    }
}
