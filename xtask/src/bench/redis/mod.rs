//! redis-benchmark as `bench lab` runs it.

pub(crate) mod load;
pub(crate) mod row;
