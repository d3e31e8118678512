//! libFuzzer entry of `weir_fuzz::spend_journal`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::spend_journal(data));
