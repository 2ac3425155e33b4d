//! The ranges of integers in the API's document: those of the code.

use utoipa::Number;
use utoipa::openapi::path::Operation;
use utoipa::openapi::schema::{AdditionalProperties, ArrayItems, Object};
use utoipa::openapi::{KnownFormat, OpenApi, RefOr, Schema, SchemaFormat};

/// Gives each integer of a document its range, which many clients do not know from the format, and
/// writes the format as it is registered: `uint16`, not `u-int16`.
pub(super) fn bound(mut document: OpenApi) -> OpenApi {
    let schemas = document.components.iter_mut().flat_map(|components| components.schemas.values_mut());
    schemas.for_each(bound_schema);
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        operations.into_iter().flatten().for_each(bound_parameters);
    }
    document
}

fn bound_parameters(operation: &mut Operation) {
    let parameters = operation.parameters.iter_mut().flatten();
    parameters.flat_map(|parameter| &mut parameter.schema).for_each(bound_schema);
}

fn bound_schema(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    match schema {
        Schema::Object(object) => bound_object(object),
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                bound_schema(items);
            }
        }
        Schema::OneOf(one) => one.items.iter_mut().for_each(bound_schema),
        Schema::AllOf(all) => all.items.iter_mut().for_each(bound_schema),
        Schema::AnyOf(any) => any.items.iter_mut().for_each(bound_schema),
        // There is no other kind in this version.
        _ => {}
    }
}

fn bound_object(object: &mut Object) {
    object.properties.values_mut().for_each(bound_schema);
    if let Some(AdditionalProperties::RefOr(values)) = object.additional_properties.as_deref_mut() {
        bound_schema(values);
    }
    let (format, max) = match &object.format {
        Some(SchemaFormat::KnownFormat(KnownFormat::UInt8)) => ("uint8", u8::MAX.into()),
        Some(SchemaFormat::KnownFormat(KnownFormat::UInt16)) => ("uint16", u16::MAX.into()),
        Some(SchemaFormat::KnownFormat(KnownFormat::UInt32)) => ("uint32", u32::MAX as usize),
        Some(SchemaFormat::KnownFormat(KnownFormat::UInt64)) => ("uint64", u64::MAX as usize),
        _ => return,
    };
    object.format = Some(SchemaFormat::Custom(format.to_owned()));
    object.minimum.get_or_insert(Number::UInt(0));
    object.maximum.get_or_insert(Number::UInt(max));
}
