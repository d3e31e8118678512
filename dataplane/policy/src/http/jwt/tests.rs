//! Tokens of the RFCs, tokens made here, and tokens that somebody made up.

use aws_lc_rs::{
    rand::SystemRandom,
    rsa::{KeyPair as RsaKeyPair, KeySize},
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaEncoding},
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::http::request;

/// RFC 7515 A.1: `{"iss":"joe","exp":1300819380,"http://example.com/is_root":true}`.
const PAYLOAD: &str = "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
const EXP: u64 = 1_300_819_380;
/// RFC 7515 A.1.1.
const HMAC_KEY: &str = r#"{"keys":[{"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"}]}"#;
/// RFC 7515 A.2.1.
const RSA_KEY: &str = r#"{"keys":[{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}]}"#;
/// RFC 7515 A.3.1.
const EC_KEY: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}]}"#;
const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

fn provider(jwks: &str, allowed: &[Algorithm]) -> Provider {
    let keys = KeySet::from_jwks(jwks, allowed).expect("keys");
    Provider { issuer: None, audiences: Vec::new(), requires_exp: true, keys: Keys::Fixed(keys) }
}

fn policy(provider: Provider) -> Jwt {
    let header = |header: &str, claim: &[&str]| ClaimHeader {
        header: header.into(),
        claim: claim.iter().map(|name| (*name).to_owned()).collect(),
    };
    let headers = vec![header("X-Sub", &["sub"]), header("X-Level", &["org", "level"])];
    Jwt::new(vec![provider], Vec::new(), headers, false, "api").expect("a policy")
}

fn head(token: &str) -> RequestHead {
    request("GET", "/", &[("Authorization", &format!("Bearer {token}"))])
}

fn reason(jwt: &Jwt, token: &str, now: u64) -> &'static str {
    jwt.check(&head(token), &mut TokenCache::default(), now).map_or_else(|refusal| refusal.reason, |_| "good")
}

fn encode(value: &Json) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

/// A key of the tests: what signs, and the document that verifies.
struct Signer {
    key: Ed25519KeyPair,
    jwks: String,
}

impl Signer {
    fn new() -> Self {
        let key = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a key");
        let x = URL_SAFE_NO_PAD.encode(key.public_key());
        let jwks = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x}]}).to_string();
        Self { key, jwks }
    }

    fn provider(&self) -> Provider {
        provider(&self.jwks, &[Algorithm::EdDsa])
    }

    fn sign(&self, header: &Json, claims: &Json) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = URL_SAFE_NO_PAD.encode(self.key.sign(message.as_bytes()));
        format!("{message}.{signature}")
    }

    fn token(&self, claims: &Json) -> String {
        self.sign(&json!({"alg": "EdDSA", "kid": "one"}), claims)
    }
}

#[test]
fn the_tokens_of_the_rfc_are_good_until_they_end() {
    let hmac =
        format!("eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.{PAYLOAD}.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    let rsa = format!("eyJhbGciOiJSUzI1NiJ9.{PAYLOAD}.{RSA_SIGNATURE}");
    let ec = format!(
        "eyJhbGciOiJFUzI1NiJ9.{PAYLOAD}.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q"
    );
    for (token, jwks, algorithm) in
        [(&hmac, HMAC_KEY, Algorithm::Hs256), (&rsa, RSA_KEY, Algorithm::Rs256), (&ec, EC_KEY, Algorithm::Es256)]
    {
        let jwt = policy(Provider { issuer: Some("joe".into()), ..provider(jwks, &[algorithm]) });
        assert_eq!(reason(&jwt, token, EXP - 1), "good", "{algorithm:?}");
        assert_eq!(reason(&jwt, token, EXP + SKEW_SECONDS - 1), "good");
        assert_eq!(reason(&jwt, token, EXP + SKEW_SECONDS), "jwt_expired");
        let swapped = token.replace(PAYLOAD, &encode(&json!({"iss": "joe", "exp": EXP + 1_000_000})));
        assert_eq!(reason(&jwt, &swapped, EXP), "jwt_signature", "{algorithm:?}");
        let other = policy(Provider { issuer: Some("jim".into()), ..provider(jwks, &[algorithm]) });
        assert_eq!(reason(&other, token, EXP), "jwt_issuer");
    }
}

#[test]
fn tokens_of_every_algorithm_are_verified() {
    let random = SystemRandom::new();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    // SEQUENCE, INTEGER of 257 bytes with a zero in front: the modulus begins at 9.
    let n = URL_SAFE_NO_PAD.encode(&rsa.public_key().as_ref()[9..265]);
    let rsa_jwks = json!({"keys": [{"kty": "RSA", "use": "sig", "n": n, "e": "AQAB"}]}).to_string();
    let encodings: [(Algorithm, &'static dyn RsaEncoding); 6] = [
        (Algorithm::Rs256, &signature::RSA_PKCS1_SHA256),
        (Algorithm::Rs384, &signature::RSA_PKCS1_SHA384),
        (Algorithm::Rs512, &signature::RSA_PKCS1_SHA512),
        (Algorithm::Ps256, &signature::RSA_PSS_SHA256),
        (Algorithm::Ps384, &signature::RSA_PSS_SHA384),
        (Algorithm::Ps512, &signature::RSA_PSS_SHA512),
    ];
    let message =
        |algorithm: Algorithm| format!("{}.{}", encode(&json!({"alg": algorithm.name()})), encode(&json!({"exp": 9})));
    for (algorithm, encoding) in encodings {
        let message = message(algorithm);
        let mut signature = vec![0; rsa.public_modulus_len()];
        rsa.sign(encoding, &random, message.as_bytes(), &mut signature).expect("a signature");
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        assert_eq!(reason(&policy(provider(&rsa_jwks, &[algorithm])), &token, 1), "good", "{algorithm:?}");
        let other = if algorithm == Algorithm::Rs256 { Algorithm::Ps256 } else { Algorithm::Rs256 };
        assert_eq!(reason(&policy(provider(&rsa_jwks, &[other])), &token, 1), "jwt_unknown_key", "{algorithm:?}");
    }
    let ec = EcdsaKeyPair::generate(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).expect("a key");
    let (x, y) = ec.public_key().as_ref()[1..].split_at(48);
    let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
    let ec_jwks = json!({"keys": [{"kty": "EC", "crv": "P-384", "x": x, "y": y}]}).to_string();
    let message = message(Algorithm::Es384);
    let signature = URL_SAFE_NO_PAD.encode(ec.sign(&random, message.as_bytes()).expect("a signature"));
    let jwt = policy(provider(&ec_jwks, &[Algorithm::Es256, Algorithm::Es384]));
    assert_eq!(reason(&jwt, &format!("{message}.{signature}"), 1), "good");
}

#[test]
fn no_algorithm_but_that_of_the_key() {
    let signer = Signer::new();
    let jwt = policy(signer.provider());
    let claims = json!({"exp": 9});
    for (header, expected) in [
        (json!({"alg": "none"}), "jwt_algorithm"),
        (json!({"alg": "None"}), "jwt_algorithm"),
        (json!({"alg": ""}), "jwt_algorithm"),
        (json!({"alg": "eddsa"}), "jwt_algorithm"),
        (json!({"alg": "HS512"}), "jwt_algorithm"),
        (json!({"alg": "HS256"}), "jwt_unknown_key"),
        (json!({"alg": "RS256"}), "jwt_unknown_key"),
        (json!({"alg": ["EdDSA"]}), "jwt_malformed"),
        (json!({}), "jwt_malformed"),
        (json!({"alg": "EdDSA", "kid": 1}), "jwt_malformed"),
        (json!({"alg": "EdDSA", "kid": "two"}), "jwt_unknown_key"),
        (json!({"alg": "EdDSA", "crit": ["exp"], "exp": 9}), "jwt_critical"),
        (json!({"alg": "EdDSA", "crit": []}), "jwt_critical"),
        (json!({"alg": "EdDSA", "jwk": {"kty": "oct"}, "x5u": "https://evil"}), "good"),
        (json!({"alg": "EdDSA"}), "good"),
    ] {
        assert_eq!(reason(&jwt, &signer.sign(&header, &claims), 1), expected, "{header}");
        let message = format!("{}.{}.", encode(&header), encode(&claims));
        assert_ne!(reason(&jwt, &message, 1), "good", "without a signature: {header}");
    }
    // The classic: the public key, which everybody has, as the secret of an HMAC.
    let public = signer.key.public_key().as_ref();
    let message = format!("{}.{}", encode(&json!({"alg": "HS256", "kid": "one"})), encode(&claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, public), message.as_bytes());
    let forged = format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag));
    assert_eq!(reason(&jwt, &forged, 1), "jwt_unknown_key");
}

#[test]
fn claims_are_checked_with_the_skew() {
    let signer = Signer::new();
    let strict = || Provider {
        issuer: Some("https://id.example".into()),
        audiences: vec!["a".into(), "b".into()],
        ..signer.provider()
    };
    let now = 1_000;
    let good = || json!({"iss": "https://id.example", "aud": "a", "exp": 1_100});
    let with = |name: &str, value: Json| {
        let mut claims = good();
        claims[name] = value;
        claims
    };
    let without = |name: &str| {
        let mut claims = good();
        claims.as_object_mut().expect("an object").remove(name);
        claims
    };
    let jwt = policy(strict());
    for (claims, expected) in [
        (good(), "good"),
        (with("aud", json!(["x", "b"])), "good"),
        (with("aud", json!("c")), "jwt_audience"),
        (with("aud", json!(["c", 1, ["a"]])), "jwt_audience"),
        (without("aud"), "jwt_audience"),
        (with("iss", json!("https://id.example/")), "jwt_issuer"),
        (with("iss", json!(["https://id.example"])), "jwt_issuer"),
        (without("iss"), "jwt_issuer"),
        (without("exp"), "jwt_no_exp"),
        (with("exp", json!(now - 60)), "jwt_expired"),
        (with("exp", json!(now - 59)), "good"),
        (with("exp", json!(1_100.5)), "good"),
        (with("exp", json!(1e300)), "good"),
        (with("exp", json!("1100")), "jwt_malformed"),
        (with("exp", json!(-1)), "jwt_malformed"),
        (with("exp", Json::Null), "jwt_malformed"),
        (with("nbf", json!(now + 60)), "good"),
        (with("nbf", json!(now + 61)), "jwt_not_yet"),
        (with("iat", json!(now + 61)), "jwt_not_yet"),
        (with("nbf", json!({})), "jwt_malformed"),
        (json!([1]), "jwt_malformed"),
        (json!("text"), "jwt_malformed"),
    ] {
        assert_eq!(reason(&jwt, &signer.token(&claims), now), expected, "{claims}");
    }
    let lax = policy(Provider { requires_exp: false, ..strict() });
    assert_eq!(reason(&lax, &signer.token(&without("exp")), now), "good");
    let providers = vec![Provider { issuer: Some("other".into()), ..signer.provider() }, strict()];
    let two = Jwt::new(providers, Vec::new(), Vec::new(), false, "api").expect("a policy");
    assert_eq!(reason(&two, &signer.token(&good()), now), "good", "two may share keys");
}

#[test]
fn claims_reach_the_origin_and_those_of_the_client_do_not() {
    let signer = Signer::new();
    let jwt = policy(signer.provider());
    let told = |claims: &Json| {
        let mut head = head(&signer.token(claims));
        head.fields.push(b"x-sub", b"admin");
        let verified = jwt.check(&head, &mut TokenCache::default(), 1).expect("good");
        jwt.clean(&mut head.fields);
        jwt.strip(&mut head);
        verified.append_to(&mut head.fields);
        let fields = head.fields.iter().map(|field| String::from_utf8_lossy(field.value).into_owned());
        (verified.subject().map(str::to_owned), fields.collect::<Vec<_>>())
    };
    let expected = (Some("alice".to_owned()), vec!["alice".to_owned(), "3".to_owned()]);
    assert_eq!(told(&json!({"exp": 9, "sub": "alice", "org": {"level": 3}})), expected);
    assert_eq!(told(&json!({"exp": 9, "org": {"level": true}})), (None, vec!["true".into()]));
    for claims in [
        json!({"exp": 9, "sub": "a\r\nx: y", "org": {"level": [1]}}),
        json!({"exp": 9, "sub": "x".repeat(CACHED_CLAIM_BYTES_MAX + 1), "org": {"level": {}}}),
        json!({"exp": 9, "sub": false, "org": 3}),
    ] {
        let (subject, fields) = told(&claims);
        assert!(subject.is_none() && fields.iter().all(|value| value == "false"), "{claims}: {fields:?}");
    }
}

#[test]
fn a_good_token_is_remembered_until_it_ends_and_not_beyond_a_reload() {
    let signer = Signer::new();
    let (jwt, mut cache) = (policy(signer.provider()), TokenCache::default());
    let head = head(&signer.token(&json!({"exp": 100, "sub": "alice"})));
    let first = jwt.check(&head, &mut cache, 1).expect("good");
    assert!(Arc::ptr_eq(&first, &jwt.check(&head, &mut cache, 159).expect("remembered")));
    assert_eq!(jwt.check(&head, &mut cache, 160).expect_err("ended").reason, "jwt_expired");
    let other = policy(provider(EC_KEY, &[Algorithm::Es256]));
    assert_eq!(other.check(&head, &mut cache, 1).expect_err("other keys").reason, "jwt_unknown_key");
}

#[test]
fn keys_that_come_later_are_used_at_once_and_decisions_of_the_old_ones_are_forgotten() {
    let signer = Signer::new();
    let shared = Arc::new(SharedKeys::new(&[Algorithm::EdDsa]).expect("an algorithm"));
    let jwt = policy(Provider { keys: Keys::Shared(shared.clone()), ..signer.provider() });
    let (head, mut cache) = (head(&signer.token(&json!({"sub": "a", "exp": 100}))), TokenCache::default());
    let refused = |cache: &mut TokenCache| jwt.check(&head, cache, 1).expect_err("not these keys").reason;
    assert_eq!(refused(&mut cache), "jwt_unknown_key");
    shared.set(Arc::new(KeySet::from_jwks(&signer.jwks, &[Algorithm::EdDsa]).expect("keys")));
    assert!(jwt.check(&head, &mut cache, 1).is_ok());
    let other =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"other","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    shared.set(Arc::new(KeySet::from_jwks(other, &[Algorithm::EdDsa]).expect("keys")));
    assert!(refused(&mut cache).starts_with("jwt_"), "a remembered token ends with its key");
    assert_eq!(SharedKeys::new(&[]).expect_err("nothing is allowed"), JwtError::NoAlgorithm);
}

#[test]
fn refusals_speak_as_rfc_6750_says() {
    let signer = Signer::new();
    let jwt = policy(signer.provider());
    let challenge = |head: &RequestHead, now| {
        let refusal = jwt.check(head, &mut TokenCache::default(), now).expect_err("refused");
        assert_eq!(refusal.status, 401);
        let challenge = refusal.fields.get(Known::WwwAuthenticate).expect("a challenge").to_vec();
        (refusal.reason, String::from_utf8(challenge).expect("ASCII"))
    };
    let mut none = head("x");
    none.fields.clear();
    assert_eq!(challenge(&none, 1), ("jwt_missing", "Bearer realm=\"api\"".to_owned()));
    none.fields.push(b"Authorization", b"Basic abc");
    assert_eq!(challenge(&none, 1).0, "jwt_missing");
    let expired = "Bearer realm=\"api\", error=\"invalid_token\", error_description=\"The token has expired\"";
    assert_eq!(challenge(&head(&signer.token(&json!({"exp": 1}))), 99), ("jwt_expired", expired.to_owned()));
}

#[test]
fn odd_and_huge_tokens_are_refused() {
    let signer = Signer::new();
    let jwt = policy(signer.provider());
    let good = signer.token(&json!({"exp": 9}));
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    for (token, expected) in [
        ("x".repeat(TOKEN_BYTES_MAX + 1), "jwt_too_long"),
        (".".repeat(TOKEN_BYTES_MAX), "jwt_malformed"),
        ("..".to_owned(), "jwt_malformed"),
        ("a.b".to_owned(), "jwt_malformed"),
        (format!("{good}."), "jwt_malformed"),
        (format!("{good}="), "jwt_malformed"),
        (format!("{good}!"), "jwt_malformed"),
        (good.replace('.', ". "), "jwt_malformed"),
        (format!("{}.e30.AA", "A".repeat(HEADER_CHARS_MAX + 1)), "jwt_malformed"),
        (format!("{}.e30.AA", URL_SAFE_NO_PAD.encode(&deep[..3_000])), "jwt_malformed"),
        (format!("{}.{}.AA", encode(&json!({"alg": "EdDSA"})), URL_SAFE_NO_PAD.encode(&deep)), "jwt_signature"),
    ] {
        assert_eq!(reason(&jwt, &token, 1), expected, "{}", &token[..token.len().min(80)]);
    }
    assert_eq!(reason(&jwt, &good, 1), "good");
}

#[test]
fn documents_and_policies_that_cannot_work_are_build_errors() {
    use Algorithm::*;
    let error = |text: &str, allowed: &[Algorithm]| KeySet::from_jwks(text, allowed).err();
    assert_eq!(error(RSA_KEY, &[]), Some(JwtError::NoAlgorithm));
    assert_eq!(error(RSA_KEY, &[Rs256, Hs256]), Some(JwtError::MixedAlgorithms));
    assert_eq!(error(RSA_KEY, &[Hs256]), Some(JwtError::NoKeys), "no public key as a secret");
    assert_eq!(error(HMAC_KEY, &[Rs256, Es256]), Some(JwtError::NoKeys));
    for text in ["", "[]", "{}", r#"{"keys":{}}"#] {
        assert_eq!(error(text, &[Rs256]), Some(JwtError::Jwks), "{text}");
    }
    for (text, allowed) in [
        (RSA_KEY.replace("\"kty\"", "\"use\":\"enc\",\"kty\""), Rs256),
        (RSA_KEY.replace("\"kty\"", "\"alg\":\"PS256\",\"kty\""), Rs256),
        (RSA_KEY.replace("\"kty\"", "\"key_ops\":[\"encrypt\"],\"kty\""), Rs256),
        (r#"{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"}]}"#.to_owned(), Rs256),
        (r#"{"keys":[{"kty":"oct","k":"c2hvcnQ"}, 1, null, {}]}"#.to_owned(), Hs256),
        (EC_KEY.replace("f83O", "AAAA"), Es256),
        (EC_KEY.replace("P-256", "P-384"), Es384),
    ] {
        assert_eq!(error(&text, &[allowed]), Some(JwtError::NoKeys), "{text}");
    }
    let many = json!({"keys": vec![json!({}); JWKS_KEYS_MAX + 1]}).to_string();
    assert_eq!(error(&many, &[Rs256]), Some(JwtError::TooManyKeys(JWKS_KEYS_MAX + 1)));
    assert!(matches!(error(&" ".repeat(JWKS_BYTES_MAX + 1), &[Rs256]), Some(JwtError::JwksTooLarge(_))));
    let build = |headers, realm| Jwt::new(vec![provider(EC_KEY, &[Es256])], vec![], headers, false, realm).err();
    for name in ["Host", "authorization", "a b", "Content-Length"] {
        let header = ClaimHeader { header: name.into(), claim: vec!["sub".into()] };
        assert_eq!(build(vec![header], "x"), Some(JwtError::Header(name.into())));
    }
    assert_eq!(build(vec![], "a\""), Some(JwtError::Realm));
    assert_eq!(Jwt::new(vec![], vec![], vec![], false, "x").err(), Some(JwtError::Providers(0)));
}

proptest! {
    #[test]
    fn no_change_of_a_good_token_is_good(at in 0usize..200, byte in "[A-Za-z0-9_.=-]") {
        let signer = Signer::new();
        let jwt = policy(signer.provider());
        let good = signer.token(&json!({"exp": 9, "sub": "alice"}));
        let mut changed = good.clone();
        let at = at % good.len();
        changed.replace_range(at..=at, &byte);
        prop_assert_eq!(reason(&jwt, &changed, 1) == "good", changed == good);
    }
}
