//! Any bytes as frames of HTTP/2, with their header blocks.

use weir_http2_codec::{
    frame::{FRAME_HEADER_BYTES, Frame, FrameHeader},
    hpack::{DecodedBlock, Decoder, Encoder, HpackError, LIST_EXCESS_MAX, TABLE_BYTES_DEFAULT},
    settings::Setting,
};

const FRAME_BYTES_MAX: u32 = 1 << 14;

/// Small enough for inputs of a few bytes to reach it.
const LIST_BYTES_MAX: usize = 256;

type Fields = Vec<(Vec<u8>, Vec<u8>, bool)>;

/// A peer's header blocks, and the same fields on their way to another peer.
struct Hop {
    decoder: Decoder,
    limited: Decoder,
    encoder: Encoder,
    peer: Decoder,
}

/// No frame harms its view. A limit on a list hands on the first fields of the whole list, and keeps the table in step. Fields that are
/// encoded again, whatever the table sizes, are decoded as they were.
pub fn http2_header_block(data: &[u8]) {
    let new = || Decoder::new(TABLE_BYTES_DEFAULT);
    let mut hop = Hop { decoder: new(), limited: new(), encoder: Encoder::new(), peer: new() };
    let (mut rest, mut block) = (data, Vec::new());
    while let Ok(Some(header)) = FrameHeader::read(rest, FRAME_BYTES_MAX) {
        assert_eq!(FrameHeader::read(&header.to_bytes(), FRAME_BYTES_MAX), Ok(Some(header)));
        let Some((frame, behind)) = rest.split_at_checked(FRAME_HEADER_BYTES + header.length as usize) else { return };
        rest = behind;
        match Frame::parse(header, &frame[FRAME_HEADER_BYTES..]) {
            Ok(Frame::Headers(headers)) => block.extend_from_slice(headers.fragment),
            Ok(Frame::Continuation(fragment)) => block.extend_from_slice(fragment),
            Ok(Frame::Settings(settings)) => {
                for setting in settings.iter() {
                    hop.set(setting.ok());
                }
                continue;
            }
            _ => continue,
        }
        if header.ends_headers() {
            if hop.pass(&block).is_err() {
                return;
            }
            block.clear();
        }
    }
}

impl Hop {
    fn set(&mut self, setting: Option<Setting>) {
        if let Some(Setting::HeaderTableSize(bytes)) = setting {
            self.encoder.set_table_bytes_max(bytes);
            self.peer.set_table_bytes_max(bytes);
        }
    }

    fn pass(&mut self, block: &[u8]) -> Result<(), HpackError> {
        let whole = decoded(&mut self.decoder, block, usize::MAX);
        let limited = decoded(&mut self.limited, block, LIST_BYTES_MAX);
        let (account, fields) = match (whole, limited) {
            (Ok((account, fields)), Ok((limited, first))) => {
                let is_over = account.list_bytes > LIST_BYTES_MAX;
                assert_eq!(limited, DecodedBlock { is_over, ..account });
                assert!(fields.starts_with(&first) && is_over == (first.len() < fields.len()));
                (account, fields)
            }
            (Ok((account, _)), Err(HpackError::ListTooLong)) => {
                assert!(account.list_bytes > LIST_EXCESS_MAX * LIST_BYTES_MAX);
                return Err(HpackError::ListTooLong);
            }
            // The limited decoder stops before it finds the other error.
            (Err(_), Err(HpackError::ListTooLong)) => return Err(HpackError::ListTooLong),
            (Err(error), Err(same)) => {
                assert_eq!(error, same);
                return Err(error);
            }
            (whole, limited) => panic!("{whole:?} but {limited:?}"),
        };
        assert!(fields.len() == account.fields && account.fields <= block.len());
        let mut again = Vec::new();
        self.encoder.begin(&mut again);
        for (name, value, is_never_indexed) in &fields {
            if *is_never_indexed {
                self.encoder.field_never_indexed(&mut again, name, value);
            } else {
                self.encoder.field(&mut again, name, value);
            }
        }
        let (_, passed) = decoded(&mut self.peer, &again, usize::MAX).expect("our own");
        assert_eq!(passed.len(), fields.len());
        for (passed, field) in passed.iter().zip(&fields) {
            // Secrets of the encoder's own judgement are marked too.
            assert!((&passed.0, &passed.1) == (&field.0, &field.1) && (passed.2 || !field.2));
        }
        Ok(())
    }
}

fn decoded(decoder: &mut Decoder, block: &[u8], list_bytes_max: usize) -> Result<(DecodedBlock, Fields), HpackError> {
    let mut fields = Fields::new();
    let account = decoder.decode(block, list_bytes_max, |field| {
        fields.push((field.name.to_vec(), field.value.to_vec(), field.is_never_indexed));
    })?;
    Ok((account, fields))
}
