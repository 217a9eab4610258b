//! Sets of CPUs, in the kernel's list format ("0-3,8").

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The highest CPU number that a set can hold. The kernel's limit on x86-64 is 8192 CPUs
/// (`NR_CPUS_RANGE_END`, arch/x86/Kconfig, v6.12).
pub const MAX_CPU: u32 = 8191;

/// A set of CPU numbers.
///
/// Two sets are equal if they hold the same CPUs, however they were built.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuSet {
    /// Bit `n % 64` of word `n / 64` is CPU `n`; no trailing zero words.
    words: Vec<u64>,
}

impl CpuSet {
    /// Builds a set from a bitmap, lowest CPU first (the layout of the kernel's
    /// `struct cpumask`).
    pub fn from_words(words: &[u64]) -> Self {
        let used = words
            .iter()
            .rposition(|word| *word != 0)
            .map_or(0, |last| last + 1);
        let mut words = words.to_vec();
        words.truncate(used);
        Self { words }
    }

    /// Adds one CPU. Numbers above [`MAX_CPU`] are ignored.
    pub fn insert(&mut self, cpu: u32) {
        if cpu > MAX_CPU {
            return;
        }
        let at = cpu as usize / 64;
        if self.words.len() <= at {
            self.words.resize(at + 1, 0);
        }
        if let Some(word) = self.words.get_mut(at) {
            *word |= 1 << (cpu % 64);
        }
    }

    /// Whether the set holds `cpu`.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words
            .get(cpu as usize / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The CPUs that both sets hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let words = self.words.iter().zip(&other.words);
        let words: Vec<u64> = words.map(|(one, two)| one & two).collect();
        Self::from_words(&words)
    }

    /// Whether the sets have a CPU in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let mut words = self.words.iter().zip(&other.words);
        words.any(|(one, two)| one & two != 0)
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words
            .iter()
            .zip(others)
            .all(|(word, other)| word & !other == 0)
    }

    /// The CPUs of the set, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0u32..).zip(&self.words).flat_map(|(index, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| index * 64 + bit)
        })
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::default();
        set.extend(cpus);
        set
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

/// The text that failed to parse as a CPU list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseCpuSetError(String);

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not a CPU list: {:?} (expected a form like 0-3,8)",
            self.0
        )
    }
}

impl std::error::Error for ParseCpuSetError {}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Parses the format of `cpuset.cpus` and `/sys/devices/system/cpu/online`; an empty
    /// text is the empty set. The kernel accepts the stride form ("0-31:2/4") as input
    /// but never prints it, so it is an error here.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseCpuSetError(text.chars().take(64).collect());
        let mut set = Self::default();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| bad())?;
            let last: u32 = last.trim().parse().map_err(|_| bad())?;
            if first > last || last > MAX_CPU {
                return Err(bad());
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Ok(set)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|cpu| *cpu == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuSet({self})")
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.words.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cpus;
        impl<'de> Visitor<'de> for Cpus {
            type Value = CpuSet;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a CPU list or the words of a bitmap")
            }
            fn visit_str<E: Error>(self, list: &str) -> Result<CpuSet, E> {
                list.parse().map_err(E::custom)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<CpuSet, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = from.next_element()? {
                    if words.len() > MAX_CPU as usize / 64 {
                        return Err(A::Error::custom("too many CPUs"));
                    }
                    words.push(word);
                }
                Ok(CpuSet::from_words(&words))
            }
        }
        deserializer.deserialize_any(Cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::CpuSet;

    fn set(text: &str) -> CpuSet {
        text.parse().expect(text)
    }

    #[test]
    fn cpu_list_round_trips() {
        for text in [
            "",
            "0",
            "0-3",
            "0-3,8",
            "1,3,5",
            "63-64",
            "0,64,127-128,511",
            "8191",
        ] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set("0-1,1-3\n").to_string(), "0-3");
    }

    #[test]
    fn invalid_cpu_list_is_an_error() {
        for text in ["a", "1-", "-1", "3-1", "0-8192", "0-31:2/4", "1;2"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_set_from_words_equals_list() {
        let words = CpuSet::from_words(&[0b1011, 0, 1 << 63, 0]);
        assert_eq!(words, set("0-1,3,191"));
        assert_eq!(words.len(), 4);
        assert!(words.contains(191) && !words.contains(2) && !words.contains(8000));
        assert!(CpuSet::from_words(&[0, 0]).is_empty());
    }

    #[test]
    fn sets_are_compared_across_words() {
        let wide = set("0-3,64-67,511");
        for (small, common, subset) in [
            ("", "", true),
            ("2,66", "2,66", true),
            ("2,66,512", "2,66", false),
            ("4-63", "", false),
            ("511", "511", true),
            ("0-511", "0-3,64-67,511", false),
        ] {
            let small = set(small);
            assert_eq!(small.intersection(&wide), set(common), "{small}");
            assert_eq!(wide.intersection(&small), set(common), "{small}");
            assert_eq!(small.intersects(&wide), !common.is_empty(), "{small}");
            assert_eq!(small.is_subset(&wide), subset, "{small}");
        }
        assert!(wide.is_subset(&wide) && !wide.is_subset(&set("0-3")));
        let mut set = set("5");
        set.extend([3, 700]);
        assert_eq!(set.to_string(), "3,5,700");
    }
}
