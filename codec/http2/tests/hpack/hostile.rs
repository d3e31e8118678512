//! Blocks that break rules, or that want much work for few bytes.

use proptest::prelude::*;
use weir_http2_codec::hpack::{DecodedBlock, Decoder, HpackError, LIST_EXCESS_MAX, TABLE_BYTES_DEFAULT};

use crate::support::{decoded, hex, owned, table};

fn error(block: &str) -> Option<HpackError> {
    decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &hex(block)).err()
}

#[test]
fn p1_indices_beyond_the_tables_are_refused() {
    for block in ["80", "be", "7e 00", "0f2f 00", "ff80 8080 8000", "41 0161 bf"] {
        assert_eq!(error(block), Some(HpackError::Index), "{block}");
    }
}

#[test]
fn p2_blocks_that_end_within_a_field_are_refused() {
    let whole = hex("4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf");
    for cut in 1..whole.len() {
        let cut_off = decoded(&mut Decoder::new(TABLE_BYTES_DEFAULT), &whole[..cut]);
        assert_eq!(cut_off, Err(HpackError::Truncated), "{cut}");
    }
    for block in ["ff", "3f", "44 05 61", "44 ffff ffff 0f"] {
        assert!(matches!(error(block), Some(HpackError::Truncated | HpackError::Integer)), "{block}");
    }
}

#[test]
fn p3_table_sizes_stand_at_the_start_and_below_the_advertised_one() {
    assert_eq!(error("20 3fe1 1f 82"), None, "0, then 4096");
    assert_eq!(error("3fe2 1f"), Some(HpackError::TableSize), "4097");
    assert_eq!(error("82 20"), Some(HpackError::TableSizeLate));
    assert_eq!(error("3fff ffff ffff 0f"), Some(HpackError::Integer));
}

#[test]
fn p4_a_smaller_table_has_to_be_confirmed_by_the_next_block() {
    let mut decoder = Decoder::new(4096);
    decoder.set_table_bytes_max(64);
    assert_eq!(decoded(&mut decoder, &hex("82")), Err(HpackError::TableSizeMissing));
    let mut decoder = Decoder::new(4096);
    decoder.set_table_bytes_max(64);
    assert_eq!(decoded(&mut decoder, &hex("3f21 82")), Ok(owned(&[(":method", "GET")])));
    assert_eq!(decoded(&mut decoder, &hex("82")), Ok(owned(&[(":method", "GET")])));
    // A larger one needs nothing, and becomes true when the peer says so.
    decoder.set_table_bytes_max(4096);
    assert_eq!(decoded(&mut decoder, &hex("82")), Ok(owned(&[(":method", "GET")])));
    assert_eq!(decoded(&mut decoder, &hex("3fe1 1f")), Ok(vec![]));
}

#[test]
fn p5_a_field_larger_than_the_table_empties_it() {
    let mut decoder = Decoder::new(64);
    assert_eq!(decoded(&mut decoder, &hex("40 0161 0162")), Ok(owned(&[("a", "b")])));
    assert_eq!(table(&mut decoder), owned(&[("a", "b")]));
    let mut block = hex("7e 21");
    block.extend([b'x'; 33]);
    assert_eq!(decoded(&mut decoder, &block), Ok(owned(&[("a", &"x".repeat(33))])));
    assert_eq!(table(&mut decoder), vec![]);
}

#[test]
fn p6_a_name_outlives_the_field_that_it_was_taken_from() {
    let mut decoder = Decoder::new(64);
    decoded(&mut decoder, &hex("40 0161 0162")).expect("valid");
    // The new field evicts the old one, whose name it has.
    assert_eq!(decoded(&mut decoder, &hex("7e 0163")), Ok(owned(&[("a", "c")])));
    assert_eq!(table(&mut decoder), owned(&[("a", "c")]));
}

#[test]
fn p7_a_block_of_references_to_one_long_field_hands_on_no_more_than_the_limit() {
    let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
    let mut bomb = hex("40 0161 7fdd 1e");
    bomb.extend([b'x'; 4060]);
    bomb.extend([0xbe; 100]);
    // The last field of the block is new: the table must have it.
    bomb.extend(hex("40 0162 0163"));
    let (mut fields, mut bytes) = (0, 0);
    let account = decoder.decode(&bomb, 64 * 1024, |field| {
        fields += 1;
        bytes += field.name.len() + field.value.len() + 32;
    });
    let list_bytes = 101 * 4093 + 34;
    assert_eq!(account, Ok(DecodedBlock { fields: 102, list_bytes, is_over: true }));
    assert_eq!((fields, bytes), (16, 16 * 4093));
    assert!(table(&mut decoder) == owned(&[("b", "c")]));
}

#[test]
fn p8_a_block_that_goes_far_beyond_the_limit_ends_the_connection_before_it_is_worked_off() {
    // One long name in the table, and 2 bytes for each field that has it: indexed, inserted once more, and a plain literal.
    let mut begin = hex("40 7fe1 1e");
    begin.extend([b'x'; 4064]);
    begin.push(0);
    for field in ["be", "7e 00", "0f2f 00"] {
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        decoded(&mut decoder, &begin).expect("valid");
        let bomb = hex(field).repeat(100_000);
        let mut fields = 0;
        let account = decoder.decode(&bomb, 64 * 1024, |_| fields += 1);
        assert_eq!((account, fields), (Err(HpackError::ListTooLong), 16), "{field}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_or_grow(
        blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..8),
        list_bytes_max in 0..10_000_usize,
    ) {
        let mut decoder = Decoder::new(TABLE_BYTES_DEFAULT);
        for block in blocks {
            let (mut fields, mut bytes) = (0, 0);
            let account = decoder.decode(&block, list_bytes_max, |field| {
                fields += 1;
                bytes += field.name.len() + field.value.len() + 32;
            });
            prop_assert!(bytes <= list_bytes_max);
            match account {
                Ok(account) => {
                    prop_assert!(account.fields <= block.len());
                    prop_assert_eq!(account.is_over, account.list_bytes > list_bytes_max);
                    prop_assert!(account.is_over || (account.fields, account.list_bytes) == (fields, bytes));
                }
                Err(HpackError::ListTooLong) => {
                    prop_assert!(block.len() * (TABLE_BYTES_DEFAULT as usize) > LIST_EXCESS_MAX * list_bytes_max);
                    break;
                }
                Err(_) => break,
            }
        }
    }
}
