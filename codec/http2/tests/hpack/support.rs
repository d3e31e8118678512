//! Fields as texts.

use weir_http2_codec::hpack::{Decoder, Encoder, HpackError};

/// A field that the test owns.
pub(crate) type Owned = (Vec<u8>, Vec<u8>);

/// The fields of a block, without a limit.
pub(crate) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Owned>, HpackError> {
    let mut fields = Vec::new();
    let account =
        decoder.decode(block, usize::MAX, |field| fields.push((field.name.to_vec(), field.value.to_vec())))?;
    assert_eq!((account.fields, account.is_over), (fields.len(), false));
    assert_eq!(account.list_bytes, fields.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>());
    Ok(fields)
}

/// The block of the fields.
pub(crate) fn encoded<'a>(encoder: &mut Encoder, fields: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    for (name, value) in fields {
        encoder.field(&mut block, name, value);
    }
    block
}

/// Texts to fields.
pub(crate) fn owned(fields: &[(&str, &str)]) -> Vec<Owned> {
    fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
}

/// Hexadecimal digits and blanks to bytes.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

/// The fields of a dynamic table, the newest first, as its indices show them.
pub(crate) fn table(decoder: &mut Decoder) -> Vec<Owned> {
    let mut fields = Vec::new();
    for index in 62_u8.. {
        // A reference changes no table. One beyond its end is an error, after which this decoder is used no more in an exchange.
        let block = if index < 127 { vec![0x80 | index] } else { vec![0xff, index - 127] };
        let Ok(mut field) = decoded(decoder, &block) else { break };
        fields.append(&mut field);
    }
    fields
}
