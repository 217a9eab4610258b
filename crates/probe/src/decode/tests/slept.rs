//! References to threads of the former pass.

use virtlens_abi as abi;
use zerocopy::{FromZeros, IntoBytes};

use super::{Stream, head};
use crate::Error;
use crate::decode::Decoder;

#[test]
fn threads_that_slept_are_those_of_the_recycled_pass() {
    let slept = |from, at, count| {
        let mut record = abi::record::SleptRecord::new_zeroed();
        record.head = head(abi::record::RECORD_SLEPT, size_of_val(&record));
        (record.from, record.at, record.count) = (from, at, count);
        record
    };
    let mut full = Stream::default();
    full.thread(0, &[], None).thread(0, &[], None);
    let former = || {
        let mut decoder = Decoder::default();
        let (facts, _) = decoder.pass(full.0.bytes(), 0).expect("it is whole");
        (decoder, facts)
    };
    let feed = |decoder: &mut Decoder, record: abi::record::SleptRecord| {
        decoder.begin(true);
        decoder.feed(record.as_bytes(), 0)
    };

    let (mut decoder, facts) = former();
    let expected = facts.threads.clone();
    decoder.recycle(facts);
    assert_eq!(decoder.former_threads(), 2);
    feed(&mut decoder, slept(0, 0, 2)).expect("both are known");
    assert_eq!(decoder.slept_threads(), 2);
    let (facts, _) = decoder.end();
    assert_eq!(facts.threads, expected);

    for unknown in [slept(1, 0, 2), slept(0, 0, 3), slept(0, 1, 1)] {
        let (mut decoder, facts) = former();
        decoder.recycle(facts);
        let error = feed(&mut decoder, unknown).expect_err("no such threads");
        assert!(matches!(error, Error::Record { offset: 0, .. }));
    }
    // Those of another pass than the last one are no former threads.
    let (mut decoder, older) = former();
    let (_newer, _) = decoder.pass(full.0.bytes(), 0).expect("it is whole");
    decoder.recycle(older);
    assert_eq!(decoder.former_threads(), 0);
}
