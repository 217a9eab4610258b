//! Large differences of a value that occur several times.
//!
//! The time that a vCPU ran is in its counters and in those of its thread. The bits of such a
//! difference do not compress, but a reference to it is short; mostly it is the one behind the
//! reference before.

/// Smallest difference that is looked for: a reference takes about as many bits.
const LEAST: u64 = 1 << 12;

/// Bits of the length of a distance, which is below 2^32.
pub(crate) const DISTANCE_BITS: u32 = 5;

/// Differences whose places are remembered; a power of two.
const PLACES: usize = 256;

/// Whether a difference of this size is worth a reference.
pub(crate) fn is_large(size: u64) -> bool {
    size >= LEAST
}

/// Where a difference is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Behind the one that was referred to last.
    Next,
    /// This many before the end.
    Back(u32),
}

/// The large differences of a value so far, without repeated ones.
#[derive(Debug)]
pub(crate) struct Repeats {
    all: Vec<i64>,
    /// Behind the one that was referred to last.
    next: usize,
    /// Positions by a hash of the difference. May be outdated.
    places: [u32; PLACES],
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            next: 0,
            places: [0; PLACES],
        }
    }
}

impl Repeats {
    /// Begins the next value.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.next = 0;
    }

    /// The place of a difference, if a reference to it is shorter; otherwise adds it.
    #[inline]
    pub(crate) fn find(&mut self, difference: i64, size: u64) -> Option<Place> {
        if self.all.get(self.next) == Some(&difference) {
            self.next += 1;
            return Some(Place::Next);
        }
        let hash = difference
            .cast_unsigned()
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = usize::try_from(hash >> (u64::BITS - PLACES.ilog2())).unwrap_or(0);
        let place = self.places.get_mut(hash)?;
        let at = *place as usize;
        if self.all.get(at) == Some(&difference)
            && let Ok(distance) = u32::try_from(self.all.len() - at)
            && DISTANCE_BITS + distance.ilog2() < size.ilog2()
        {
            self.next = at + 1;
            return Some(Place::Back(distance));
        }
        *place = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.add(difference);
        None
    }

    /// Adds a difference.
    pub(crate) fn add(&mut self, difference: i64) {
        self.all.push(difference);
    }

    /// The difference at [`Place::Next`]; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<i64> {
        let difference = self.all.get(self.next).copied();
        self.next += 1;
        difference
    }

    /// The difference at [`Place::Back`]; `None` if the place does not exist.
    pub(crate) fn back(&mut self, distance: u64) -> Option<i64> {
        let at = self
            .all
            .len()
            .checked_sub(usize::try_from(distance).ok()?)?;
        self.next = at;
        self.next()
    }
}
