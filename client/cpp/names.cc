#include "client/cpp/names.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/type_resolver.h>
#include <google/protobuf/util/type_resolver_util.h>

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace plumbline {
namespace {

constexpr char kUrlPrefix[] = "type.googleapis.com";

using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::util::TypeResolver;

// tests/protocol holds that the first value of every enum is PREFIX_UNSPECIFIED = 0.
std::string without_prefix(const EnumValueDescriptor& value) {
  const EnumDescriptor& type = *value.type();
  if (type.containing_type() != nullptr || value.number() == 0) return value.name();
  absl::string_view prefix = type.value(0)->name(), name = value.name();
  if (absl::ConsumeSuffix(&prefix, "UNSPECIFIED")) absl::ConsumePrefix(&name, prefix);
  return std::string(name);
}

// The types of this program, as protobuf's JSON asks for them.
class ShortNames : public TypeResolver {
 public:
  google::protobuf::util::Status ResolveMessageType(const std::string& url, google::protobuf::Type* type) override {
    return types_->ResolveMessageType(url, type);
  }

  google::protobuf::util::Status ResolveEnumType(const std::string& url, google::protobuf::Enum* type) override {
    auto status = types_->ResolveEnumType(url, type);
    const EnumDescriptor* known = DescriptorPool::generated_pool()->FindEnumTypeByName(type->name());
    if (!status.ok() || known == nullptr) return status;
    for (int i = 0; i < known->value_count(); ++i)
      type->mutable_enumvalue(i)->set_name(without_prefix(*known->value(i)));
    return status;
  }

 private:
  const std::unique_ptr<TypeResolver> types_{
      google::protobuf::util::NewTypeResolverForDescriptorPool(kUrlPrefix, DescriptorPool::generated_pool())};
};

}  // namespace

std::string short_name(const EnumDescriptor& type, int value) {
  const EnumValueDescriptor* known = type.FindValueByNumber(value);
  return known == nullptr ? absl::StrCat(value) : without_prefix(*known);
}

absl::StatusOr<std::string> to_json(const google::protobuf::Message& message, bool defaults) {
  static ShortNames types;  // It has no state that a call changes.
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = defaults;
  options.preserve_proto_field_names = true;
  std::string text;
  const auto status = google::protobuf::util::BinaryToJsonString(
      &types, absl::StrCat(kUrlPrefix, "/", message.GetTypeName()), message.SerializeAsString(), &text, options);
  if (!status.ok()) return absl::InvalidArgumentError(status.ToString());
  return text;
}

}  // namespace plumbline
