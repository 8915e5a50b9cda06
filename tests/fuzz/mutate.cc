#include "tests/fuzz/mutate.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>

#include "tests/fuzz/pieces.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t size_max);

namespace plumbline::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr std::size_t kTextMax = 64;  // That a mutation makes of a shorter one.

class Mutator {
 public:
  Mutator(const Grammar& grammar, unsigned seed) : grammar_(grammar), random_(seed) {}

  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  // One field of the message, however deep.
  void change(Message* message) {
    const auto* const descriptor = message->GetDescriptor();
    if (descriptor->field_count() == 0) return;
    const auto* const reflection = message->GetReflection();
    std::vector<const FieldDescriptor*> set;
    reflection->ListFields(*message, &set);
    const bool known = !set.empty() && below(4) != 0;
    const FieldDescriptor* const field =
        known ? set[below(set.size())] : descriptor->field(static_cast<int>(below(descriptor->field_count())));
    if (field->is_repeated()) return change_list(message, reflection, field);
    if (known && below(16) == 0) return reflection->ClearField(message, field);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      return change(reflection->MutableMessage(message, field));
    change_scalar(message, reflection, field, -1);
  }

 private:
  void change_list(Message* message, const Reflection* reflection, const FieldDescriptor* field) {
    const int size = reflection->FieldSize(*message, field);
    const std::size_t what = size == 0 ? 0 : below(8);
    if (what == 0) {
      add(message, reflection, field, size);
    } else if (what == 1) {
      reflection->RemoveLast(message, field);
    } else if (what == 2) {
      reflection->SwapElements(message, field, static_cast<int>(below(size)), static_cast<int>(below(size)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      change(reflection->MutableRepeatedMessage(message, field, static_cast<int>(below(size))));
    } else {
      change_scalar(message, reflection, field, static_cast<int>(below(size)));
    }
  }

  void add(Message* message, const Reflection* reflection, const FieldDescriptor* field, int size) {
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* const added = reflection->AddMessage(message, field);
        if (size > 0) {
          added->CopyFrom(reflection->GetRepeatedMessage(*message, field, static_cast<int>(below(size))));
        } else {
          change(added);
        }
        return;
      }
      case FieldDescriptor::CPPTYPE_STRING:
        return reflection->AddString(message, field, text({}));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return reflection->AddDouble(message, field, real(0));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return reflection->AddFloat(message, field, static_cast<float>(real(0)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return reflection->AddBool(message, field, below(2) != 0);
      case FieldDescriptor::CPPTYPE_ENUM:
        return reflection->AddEnumValue(message, field, static_cast<int>(below(24)));
      case FieldDescriptor::CPPTYPE_INT32:
        return reflection->AddInt32(message, field, static_cast<std::int32_t>(integer(0)));
      case FieldDescriptor::CPPTYPE_UINT32:
        return reflection->AddUInt32(message, field, static_cast<std::uint32_t>(integer(0)));
      case FieldDescriptor::CPPTYPE_INT64:
        return reflection->AddInt64(message, field, integer(0));
      case FieldDescriptor::CPPTYPE_UINT64:
        return reflection->AddUInt64(message, field, static_cast<std::uint64_t>(integer(0)));
    }
  }

  // `index` below 0: the field is no list.
  void change_scalar(Message* message, const Reflection* reflection, const FieldDescriptor* field, int index) {
    const auto put = [&](auto get, auto set, auto get_of_list, auto set_of_list, auto changed) {
      if (index < 0) {
        (reflection->*set)(message, field, changed((reflection->*get)(*message, field)));
      } else {
        (reflection->*set_of_list)(message, field, index, changed((reflection->*get_of_list)(*message, field, index)));
      }
    };
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return put(&Reflection::GetString, &Reflection::SetString, &Reflection::GetRepeatedString,
                   &Reflection::SetRepeatedString, [&](const std::string& old) { return text(old); });
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return put(&Reflection::GetDouble, &Reflection::SetDouble, &Reflection::GetRepeatedDouble,
                   &Reflection::SetRepeatedDouble, [&](double old) { return real(old); });
      case FieldDescriptor::CPPTYPE_FLOAT:
        return put(&Reflection::GetFloat, &Reflection::SetFloat, &Reflection::GetRepeatedFloat,
                   &Reflection::SetRepeatedFloat, [&](float old) { return static_cast<float>(real(old)); });
      case FieldDescriptor::CPPTYPE_BOOL:
        return put(&Reflection::GetBool, &Reflection::SetBool, &Reflection::GetRepeatedBool,
                   &Reflection::SetRepeatedBool, [](bool old) { return !old; });
      case FieldDescriptor::CPPTYPE_ENUM:
        return put(&Reflection::GetEnumValue, &Reflection::SetEnumValue, &Reflection::GetRepeatedEnumValue,
                   &Reflection::SetRepeatedEnumValue, [&](int) { return static_cast<int>(below(24)); });
      case FieldDescriptor::CPPTYPE_INT32:
        return put(&Reflection::GetInt32, &Reflection::SetInt32, &Reflection::GetRepeatedInt32,
                   &Reflection::SetRepeatedInt32,
                   [&](std::int32_t old) { return static_cast<std::int32_t>(integer(old)); });
      case FieldDescriptor::CPPTYPE_UINT32:
        return put(&Reflection::GetUInt32, &Reflection::SetUInt32, &Reflection::GetRepeatedUInt32,
                   &Reflection::SetRepeatedUInt32,
                   [&](std::uint32_t old) { return static_cast<std::uint32_t>(integer(old)); });
      case FieldDescriptor::CPPTYPE_INT64:
        return put(&Reflection::GetInt64, &Reflection::SetInt64, &Reflection::GetRepeatedInt64,
                   &Reflection::SetRepeatedInt64, [&](std::int64_t old) { return integer(old); });
      case FieldDescriptor::CPPTYPE_UINT64:
        return put(&Reflection::GetUInt64, &Reflection::SetUInt64, &Reflection::GetRepeatedUInt64,
                   &Reflection::SetRepeatedUInt64, [&](std::uint64_t old) {
                     return static_cast<std::uint64_t>(integer(static_cast<std::int64_t>(old)));
                   });
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return;
    }
  }

  std::int64_t integer(std::int64_t old) {
    constexpr std::int64_t kNotable[] = {
        -1, 0, 1, 2, 3, 7, 8, 16, 64, 255, 1 << 16, 1LL << 31, 1LL << 32, 1LL << 53, 1LL << 62, INT64_MAX, INT64_MIN};
    switch (below(4)) {
      case 0:
        return kNotable[below(std::size(kNotable))];
      case 1:
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(old) + 1);
      case 2:
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(old) - 1);
      default:
        return static_cast<std::int64_t>(below(9));
    }
  }

  double real(double old) {
    constexpr double kNotable[] = {0,      -0.0, 1,     -1,       0.5,       2,   1e-45,
                                   1e-310, 1e38, 1e300, INFINITY, -INFINITY, NAN, 2147483648.0};
    return below(4) == 0 ? old * 2 : below(4) == 0 ? -old : kNotable[below(std::size(kNotable))];
  }

  std::string text(std::string old) {
    if (!grammar_.words.empty() && below(2) == 0) return grammar_.words[below(grammar_.words.size())];
    std::size_t size = old.size();
    old.resize(std::max(size, kTextMax));
    size = LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(old.data()), size, old.size());
    old.resize(size);
    if (below(16) != 0) {  // Parsers say of other texts no more than that they are no UTF-8.
      for (char& byte : old) byte &= 0x7f;
    }
    return old;
  }

  const Grammar& grammar_;
  std::minstd_rand random_;
};

}  // namespace

std::size_t mutate(const Grammar& grammar, std::uint8_t* data, std::size_t size, std::size_t size_max, unsigned seed) {
  Mutator mutator(grammar, seed);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> all;
  if (size > grammar.header) {
    for (const std::string_view piece : pieces(input.substr(grammar.header))) all.emplace_back(piece);
  }
  const std::size_t what = mutator.below(16);
  if (all.empty() || what == 0) return LLVMFuzzerMutate(data, size, size_max);

  const std::size_t at = mutator.below(all.size()), other = mutator.below(all.size());
  if (what == 1) {
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at));
  } else if (what == 2) {
    all.insert(all.begin() + static_cast<std::ptrdiff_t>(other), std::string(all[at]));
  } else if (what == 3) {
    std::swap(all[at], all[other]);
  } else if (what == 4) {  // Bytes of one message.
    std::string& piece = all[at];
    const std::size_t before = piece.size();
    piece.resize(before + kTextMax);
    piece.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(piece.data()), before, piece.size()));
  } else {
    const std::unique_ptr<Message> message(grammar.kinds[std::min(at, grammar.kinds.size() - 1)]->New());
    message->ParsePartialFromString(all[at]);
    mutator.change(message.get());
    while (mutator.below(3) == 0) mutator.change(message.get());
    all[at] = message->SerializePartialAsString();
  }
  std::string output(input.substr(0, grammar.header));
  if (grammar.header > 0 && mutator.below(32) == 0) output[mutator.below(output.size())] ^= 1;
  for (const std::string& piece : all) append_piece(piece, &output);
  if (output.size() > size_max) return LLVMFuzzerMutate(data, size, size_max);
  std::memcpy(data, output.data(), output.size());
  return output.size();
}

}  // namespace plumbline::fuzz
