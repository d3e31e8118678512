//! libFuzzer entry of `weir_fuzz::sasl_scram_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::sasl_scram_client(data));
