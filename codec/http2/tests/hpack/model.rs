//! HPACK as plain as it can be: a list of fields, and a block of representations that are chosen at will.

use proptest::prelude::*;
use weir_http2_codec::hpack::Decoder;

use crate::support::{Owned, decoded, table};

/// One step of a sender that knows the RFC, and cares for no cost.
#[derive(Clone, Debug)]
enum Step {
    /// A field of the dynamic table, modulo its length; else of the static one.
    Indexed(usize),
    /// A literal: with its name from a table or in full, with one of the three patterns.
    Literal { name: Name, value: Vec<u8>, pattern: Pattern },
}

#[derive(Clone, Debug)]
enum Name {
    Indexed(usize),
    New(Vec<u8>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pattern {
    Inserted,
    Plain,
    Never,
}

/// The sender's table.
struct Model {
    fields: Vec<Owned>,
    size_max: usize,
}

impl Model {
    fn evict(&mut self, size: usize) {
        while self.fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>() > size {
            self.fields.pop();
        }
    }

    fn insert(&mut self, field: Owned) {
        let bytes = field.0.len() + field.1.len() + 32;
        self.evict(self.size_max.saturating_sub(bytes));
        if bytes <= self.size_max {
            self.fields.insert(0, field);
        } else {
            self.fields.clear();
        }
    }

    /// The index of some field, and the field.
    fn pick(&self, choice: usize) -> (usize, Owned) {
        if self.fields.is_empty() {
            return (2, (b":method".to_vec(), b"GET".to_vec()));
        }
        let place = choice % self.fields.len();
        (62 + place, self.fields[place].clone())
    }

    fn step(&mut self, step: &Step, block: &mut Vec<u8>) -> Owned {
        match step {
            Step::Indexed(choice) => {
                let (index, field) = self.pick(*choice);
                integer(block, index, 7, 0x80);
                field
            }
            Step::Literal { name, value, pattern } => {
                let (bits, first) = [(6, 0x40), (4, 0), (4, 0x10)][*pattern as usize];
                let name = match name {
                    Name::Indexed(choice) => {
                        let (index, field) = self.pick(*choice);
                        integer(block, index, bits, first);
                        field.0
                    }
                    Name::New(name) => {
                        block.push(first);
                        string(block, name);
                        name.clone()
                    }
                };
                string(block, value);
                let field = (name, value.clone());
                if *pattern == Pattern::Inserted {
                    self.insert(field.clone());
                }
                field
            }
        }
    }
}

fn integer(block: &mut Vec<u8>, number: usize, bits: u32, first: u8) {
    let mask = (1 << bits) - 1;
    if number < mask {
        return block.push(first | number as u8);
    }
    block.push(first | mask as u8);
    let mut rest = number - mask;
    while rest >= 128 {
        block.push((rest % 128 + 128) as u8);
        rest /= 128;
    }
    block.push(rest as u8);
}

fn string(block: &mut Vec<u8>, text: &[u8]) {
    integer(block, text.len(), 7, 0);
    block.extend_from_slice(text);
}

fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

fn steps() -> impl Strategy<Value = Step> {
    let name = prop_oneof![any::<usize>().prop_map(Name::Indexed), bytes(12).prop_map(Name::New)];
    let pattern = prop_oneof![3 => Just(Pattern::Inserted), 1 => Just(Pattern::Plain), 1 => Just(Pattern::Never)];
    let literal = (name, bytes(40), pattern).prop_map(|(name, value, pattern)| Step::Literal { name, value, pattern });
    prop_oneof![1 => any::<usize>().prop_map(Step::Indexed), 2 => literal]
}

fn blocks() -> impl Strategy<Value = Vec<(Vec<usize>, Vec<Step>)>> {
    let sizes = prop::collection::vec(0..=300_usize, 0..3);
    let block = (prop_oneof![3 => Just(Vec::new()), 1 => sizes], prop::collection::vec(steps(), 0..30));
    prop::collection::vec(block, 1..8)
}

proptest! {
    #[test]
    fn every_block_of_a_plain_sender_is_understood_and_leaves_its_table(blocks in blocks()) {
        let mut decoder = Decoder::new(300);
        let mut model = Model { fields: Vec::new(), size_max: 300 };
        for (sizes, steps) in blocks {
            let mut block = Vec::new();
            for size in sizes {
                integer(&mut block, size, 5, 0x20);
                model.size_max = size;
                model.evict(size);
            }
            let fields: Vec<_> = steps.iter().map(|step| model.step(step, &mut block)).collect();
            prop_assert_eq!(decoded(&mut decoder, &block), Ok(fields));
            prop_assert_eq!(table(&mut decoder), model.fields.clone());
        }
    }
}
