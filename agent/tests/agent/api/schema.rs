//! A strict check of JSON against the schemas of the description.
//!
//! It knows the keywords that the description uses. Unlike JSON Schema it refuses
//! properties that are not described.

use serde_json::Value;
use virtlens::http::DESCRIPTION;

/// The keywords that are checked, or that only describe.
const KEYWORDS: [&str; 14] = [
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "minimum",
    "properties",
    "required",
    "type",
];

/// The description.
pub(crate) fn description() -> Value {
    serde_json::from_str(DESCRIPTION).expect("JSON")
}

/// Compares a value with a schema; returns the first difference.
pub(crate) fn check(all: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let keys = schema.as_object().expect("a schema");
    if keys.is_empty() {
        return Ok(());
    }
    for key in keys.keys() {
        assert!(KEYWORDS.contains(&key.as_str()), "{place}: {key}");
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let pointer = reference.strip_prefix('#').expect("a local reference");
        let target = all.pointer(pointer).expect(reference);
        return check(all, target, value, place);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let tries = choices
            .iter()
            .map(|one| check(all, one, value, place).err());
        let errors: Option<Vec<String>> = tries.collect();
        return errors.map_or(Ok(()), |errors| Err(errors.join(", or ")));
    }
    if let Some(constant) = schema.get("const")
        && constant != value
    {
        return Err(format!("{place}: {value} is not {constant}"));
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        return Err(format!("{place}: {value} is not in {known:?}"));
    }
    let types = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::Array(types) => types.iter().collect(),
        one => vec![one],
    };
    let is_of = |one: &&Value| match one.as_str().expect("a name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{place}: unknown type {other}"),
    };
    if !types.is_empty() && !types.iter().any(is_of) {
        return Err(format!("{place}: {value} is not of {types:?}"));
    }
    match value {
        Value::Array(items) => items.iter().enumerate().try_for_each(|(index, item)| {
            check(all, &schema["items"], item, &format!("{place}[{index}]"))
        }),
        Value::Object(fields) => {
            for name in schema["required"].as_array().into_iter().flatten() {
                let name = name.as_str().expect("a name");
                if !fields.contains_key(name) {
                    return Err(format!("{place}: {name} is missing"));
                }
            }
            fields.iter().try_for_each(|(name, value)| {
                let described = schema["properties"].get(name);
                let described = described.or(schema.get("additionalProperties"));
                let place = format!("{place}.{name}");
                let described = described.ok_or_else(|| format!("{place} is not described"))?;
                check(all, described, value, &place)
            })
        }
        _ => Ok(()),
    }
}
