//! libFuzzer entry of `weir_fuzz::redis_request_parser`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::redis_request_parser(data));
