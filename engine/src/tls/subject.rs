//! Writes the subject of a certificate as text (RFC 4514), such as `CN=alice, O=Example`.
//!
//! Invariant: different subjects have different texts, because rules compare them. A value that has a comma is not taken
//! for two attributes.

use std::fmt::Write;
use x509_parser::asn1_rs::{Any, BmpString, Tag};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Returns the subject of a certificate; `None` if the certificate cannot be read.
pub(super) fn subject_of(certificate: &[u8]) -> Option<Box<str>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    Some(text_of(parsed.subject()).into())
}

/// Attributes in the order of the certificate, `, ` between them, and ` + ` between those of one part.
fn text_of(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for part in name.iter_rdn() {
        let mut separator = if text.is_empty() { "" } else { ", " };
        for attribute in part.iter() {
            text.push_str(separator);
            append_attribute(attribute, &mut text);
            separator = " + ";
        }
    }
    text
}

fn append_attribute(attribute: &AttributeTypeAndValue<'_>, text: &mut String) {
    match oid2abbrev(attribute.attr_type(), oid_registry()) {
        Ok(name) => text.push_str(name),
        Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
    }
    text.push('=');
    match value_of(attribute.attr_value()) {
        Some(value) => append_escaped(&value, text),
        None => {
            text.push('#');
            attribute.attr_value().data.iter().for_each(|byte| append_hex(*byte, text));
        }
    }
}

/// Returns the value of an attribute; `None` if it is no text.
fn value_of(value: &Any<'_>) -> Option<String> {
    match value.tag() {
        Tag::NumericString
        | Tag::VisibleString
        | Tag::PrintableString
        | Tag::GeneralString
        | Tag::T61String
        | Tag::Utf8String
        | Tag::Ia5String => std::str::from_utf8(value.data).ok().map(str::to_owned),
        Tag::BmpString => BmpString::try_from(value.clone()).ok().map(|text| text.string()),
        _ => None,
    }
}

/// Appends a value, escaped (RFC 4514 §2.4).
fn append_escaped(value: &str, text: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (at, character) in value.chars().enumerate() {
        match character {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' => text.extend(['\\', character]),
            '#' if at == 0 => text.push_str("\\#"),
            ' ' if at == 0 || at == last => text.push_str("\\ "),
            character if character.is_control() => {
                let mut bytes = [0; 4];
                for byte in character.encode_utf8(&mut bytes).bytes() {
                    text.push('\\');
                    append_hex(byte, text);
                }
            }
            character => text.push(character),
        }
    }
}

fn append_hex(byte: u8, text: &mut String) {
    // Writing to memory cannot fail.
    let _ = write!(text, "{byte:02x}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn subject(attributes: &[(DnType, DnValue)]) -> String {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in attributes {
            params.distinguished_name.push(kind.clone(), value.clone());
        }
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        subject_of(certificate.der()).unwrap().into()
    }

    #[test]
    fn different_subjects_have_different_texts() {
        let name = |value: &str| (DnType::CommonName, DnValue::Utf8String(value.to_owned()));
        let organization = (DnType::OrganizationName, DnValue::Utf8String("Admin".to_owned()));
        for (attributes, expected) in [
            (&[name("alice"), organization][..], "CN=alice, O=Admin"),
            (&[name("alice, O=Admin")], "CN=alice\\, O=Admin"),
            (&[name("alice + O=Admin")], "CN=alice \\+ O=Admin"),
            (&[name("alice\\, O=Admin")], "CN=alice\\\\\\, O=Admin"),
            (&[name(" # a\"b;<c> ")], "CN=\\ # a\\\"b\\;\\<c\\>\\ "),
            (&[name("#61")], "CN=\\#61"),
            (&[name("a\n\0\u{85}é")], "CN=a\\0a\\00\\c2\\85é"),
            (&[(DnType::CustomDnType(vec![1, 2, 3, 4]), DnValue::Utf8String("x".to_owned()))], "1.2.3.4=x"),
            (&[(DnType::CommonName, DnValue::BmpString("é".try_into().unwrap()))], "CN=é"),
            (&[], ""),
        ] {
            assert_eq!(subject(attributes), expected);
        }
    }
}
