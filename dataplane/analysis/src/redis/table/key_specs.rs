// Generated from the COMMAND replies of redis-6.2, redis-7.0, valkey-9.1. Do not edit; to regenerate:
// cargo xtask generate redis-commands --server redis-6.2=HOST:PORT --server redis-7.0=HOST:PORT --server valkey-9.1=HOST:PORT
//! Distinct lists of key specs.

use super::super::command::{BeginSearch as B, FindKeys as K, KeyFlags as F, KeySpec};

pub(super) const K0: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K1: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::Range { last: -2, step: 1, limit: 0 })];
pub(super) const K2: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K3: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::INSERT, F::OW], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K4: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::INSERT, F::RW], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K5: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K6: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(2), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K7: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::DELETE, F::RW], B::Index(3), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::DELETE, F::INCOMPLETE, F::RW], B::Keyword { word: "KEYS", start: -2 }, K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K8: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::INSERT, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K9: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K10: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K11: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K12: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Unknown, K::Unknown)];
pub(super) const K13: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Unknown, K::Unknown), KeySpec::new(&[F::OW, F::UPDATE], B::Unknown, K::Unknown)];
pub(super) const K14: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K15: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE, F::VARIABLE_FLAGS], B::Keyword { word: "STORE", start: 5 }, K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE, F::VARIABLE_FLAGS], B::Keyword { word: "STOREDIST", start: 5 }, K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K16: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE, F::VARIABLE_FLAGS], B::Keyword { word: "STORE", start: 6 }, K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::OW, F::UPDATE, F::VARIABLE_FLAGS], B::Keyword { word: "STOREDIST", start: 6 }, K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K17: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(1), K::Range { last: 1, step: 1, limit: 0 })];
pub(super) const K18: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K19: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K20: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Keyword { word: "STREAMS", start: 1 }, K::Range { last: -1, step: 1, limit: 2 })];
pub(super) const K21: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RO], B::Keyword { word: "STREAMS", start: 4 }, K::Range { last: -1, step: 1, limit: 2 })];
pub(super) const K22: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RW], B::Index(1), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K23: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RW], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K24: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K25: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RW, F::UPDATE], B::Index(2), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K26: &[KeySpec] = &[KeySpec::new(&[F::ACCESS, F::RW, F::UPDATE, F::VARIABLE_FLAGS], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K27: &[KeySpec] = &[KeySpec::new(&[F::DELETE, F::RM], B::Index(1), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K28: &[KeySpec] = &[KeySpec::new(&[F::DELETE, F::RM], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K29: &[KeySpec] = &[KeySpec::new(&[F::DELETE, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K30: &[KeySpec] = &[KeySpec::new(&[F::DELETE, F::RW], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K31: &[KeySpec] = &[KeySpec::new(&[F::INSERT, F::OW], B::Index(1), K::Range { last: -1, step: 2, limit: 0 })];
pub(super) const K32: &[KeySpec] = &[KeySpec::new(&[F::INSERT, F::OW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K33: &[KeySpec] = &[KeySpec::new(&[F::INSERT, F::RW], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K34: &[KeySpec] = &[KeySpec::new(&[F::INSERT, F::RW], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K35: &[KeySpec] = &[KeySpec::new(&[F::NOT_KEY], B::Index(1), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K36: &[KeySpec] = &[KeySpec::new(&[F::NOT_KEY], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K37: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::KeyNum { number: 0, first: 1, step: 2 })];
pub(super) const K38: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::Range { last: -1, step: 2, limit: 0 })];
pub(super) const K39: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K40: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::KeyNum { number: 0, first: 1, step: 1 })];
pub(super) const K41: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K42: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K43: &[KeySpec] = &[KeySpec::new(&[F::OW, F::UPDATE], B::Index(2), K::Range { last: 0, step: 1, limit: 0 }), KeySpec::new(&[F::ACCESS, F::RO], B::Index(3), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K44: &[KeySpec] = &[KeySpec::new(&[F::RO], B::Index(1), K::Range { last: -1, step: 1, limit: 0 })];
pub(super) const K45: &[KeySpec] = &[KeySpec::new(&[F::RO], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K46: &[KeySpec] = &[KeySpec::new(&[F::RO], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K47: &[KeySpec] = &[KeySpec::new(&[F::RW], B::Unknown, K::Unknown)];
pub(super) const K48: &[KeySpec] = &[KeySpec::new(&[F::RW, F::UPDATE], B::Index(1), K::Range { last: 0, step: 1, limit: 0 })];
pub(super) const K49: &[KeySpec] = &[KeySpec::new(&[F::RW, F::UPDATE], B::Index(2), K::Range { last: 0, step: 1, limit: 0 })];
