// What the .proto files promise to other programs and to our own hand-written
// codecs.

#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "proto/actor.pb.h"
#include "proto/archive.pb.h"
#include "proto/head.pb.h"
#include "proto/head_state.pb.h"
#include "proto/worker.pb.h"
#include "runtime/wire/value.h"

namespace miniray {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using ::testing::EndsWith;

// All files of ours that `file` imports, and itself.
void Collect(const FileDescriptor* file, std::set<const FileDescriptor*>* all) {
  if (!all->insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) {
    Collect(file->dependency(i), all);
  }
}

std::set<const FileDescriptor*> Files() {
  std::set<const FileDescriptor*> files;
  for (const Descriptor* message :
       {v1::Call::descriptor(), v1::RegisterNode::descriptor(),
        v1::HostActor::descriptor(), v1::ArchiveRecord::descriptor(),
        v1::StoredNode::descriptor()}) {
    Collect(message->file(), &files);
  }
  return files;
}

TEST(WireContractTest, EveryFileIsOfVersionOneAndStartsEnumsWithUnspecified) {
  EXPECT_EQ(Files().size(), 11u);
  for (const FileDescriptor* file : Files()) {
    SCOPED_TRACE(file->name());
    EXPECT_EQ(file->package(), "miniray.v1");
    EXPECT_EQ(file->syntax(), FileDescriptor::SYNTAX_PROTO3);
    for (int i = 0; i < file->enum_type_count(); ++i) {
      const EnumDescriptor* type = file->enum_type(i);
      ASSERT_NE(type->FindValueByNumber(0), nullptr) << type->name();
      EXPECT_THAT(type->FindValueByNumber(0)->name(), EndsWith("_UNSPECIFIED"));
    }
  }
}

// ValueView reads by these numbers.
TEST(WireContractTest, ValueKindsAreTheFieldNumbersOfValue) {
  const std::vector<std::pair<ValueKind, std::string>> kinds = {
      {ValueKind::kBool, "bool_value"},
      {ValueKind::kInt, "int_value"},
      {ValueKind::kUint, "uint_value"},
      {ValueKind::kDouble, "double_value"},
      {ValueKind::kString, "string_value"},
      {ValueKind::kBytes, "bytes_value"},
      {ValueKind::kTensor, "tensor"},
      {ValueKind::kList, "list"},
      {ValueKind::kMap, "map"},
      {ValueKind::kActor, "actor"},
      {ValueKind::kMessage, "message"},
      {ValueKind::kObject, "object"}};
  const Descriptor* value = v1::Value::descriptor();
  ASSERT_EQ(value->oneof_decl(0)->field_count(),
            static_cast<int>(kinds.size()));
  for (const auto& [kind, name] : kinds) {
    const FieldDescriptor* field =
        value->FindFieldByNumber(static_cast<int>(kind));
    ASSERT_NE(field, nullptr) << name;
    EXPECT_EQ(field->name(), name);
    EXPECT_NE(field->real_containing_oneof(), nullptr) << name;
  }
  EXPECT_EQ(value->FindFieldByName("int_value")->type(),
            FieldDescriptor::TYPE_SINT64);
  EXPECT_EQ(value->FindFieldByName("uint_value")->type(),
            FieldDescriptor::TYPE_UINT64);
  EXPECT_EQ(value->FindFieldByName("double_value")->type(),
            FieldDescriptor::TYPE_DOUBLE);
}

TEST(WireContractTest, EveryKindHasAName) {
  std::set<std::string> names;
  for (int kind = 0; kind <= 12; ++kind) {
    names.emplace(ValueKindName(static_cast<ValueKind>(kind)));
  }
  EXPECT_EQ(names.size(), 12u);  // Signed and unsigned: "an integer".
  EXPECT_EQ(ValueKindName(static_cast<ValueKind>(13)),
            "a value of an unknown kind");
}

// A sender appends a tensor's memory; a receiver knows its shape before.
TEST(WireContractTest, TensorDataComesLast) {
  const Descriptor* tensor = v1::Tensor::descriptor();
  const FieldDescriptor* data = tensor->FindFieldByName("data");
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(data->number(), 15);
  for (int i = 0; i < tensor->field_count(); ++i) {
    EXPECT_LE(tensor->field(i)->number(), data->number());
  }
  EXPECT_EQ(v1::Tensor::kDtypeFieldNumber, 1);
  EXPECT_EQ(v1::Tensor::kShapeFieldNumber, 2);
}

// Put together, entries of frames are frames: call_messages.h relies on it.
TEST(WireContractTest, FramesJoinedAreFrames) {
  for (const Descriptor* frame :
       {v1::CallFrame::descriptor(), v1::ReplyFrame::descriptor()}) {
    const FieldDescriptor* entries = frame->FindFieldByNumber(1);
    ASSERT_NE(entries, nullptr) << frame->name();
    EXPECT_TRUE(entries->is_repeated()) << frame->name();
  }
  v1::CallFrame one, two, both;
  one.add_calls()->set_call_id(1);
  two.add_calls()->set_call_id(2);
  ASSERT_TRUE(
      both.ParseFromString(one.SerializeAsString() + two.SerializeAsString()));
  EXPECT_EQ(both.calls_size(), 2);
}

}  // namespace
}  // namespace miniray
