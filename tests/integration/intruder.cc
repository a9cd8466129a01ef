#include "tests/integration/intruder.h"

#include <arpa/inet.h>
#include <glog/logging.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/dynamic_message.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/security/credentials.h"
#include "proto/actor.pb.h"
#include "proto/head.pb.h"
#include "proto/object.pb.h"
#include "proto/run.pb.h"
#include "runtime/base/net.h"
#include "runtime/base/version.h"
#include "runtime/rpc/channel.h"

namespace miniray {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::FileDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::MethodDescriptor;
using ::google::protobuf::Reflection;
using ::google::protobuf::ServiceDescriptor;

constexpr absl::Duration kCallTimeout = absl::Seconds(20);
// Messages refer to each other (values hold values).
constexpr int kMaxDepth = 3;

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void Fill(Message* message, const std::map<std::string, std::string>& values,
          int depth) {
  const Reflection* const reflection = message->GetReflection();
  const Descriptor* const type = message->GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* const field = type->field(i);
    // The first of a oneof will do; repeated fields may stay empty.
    if (field->is_repeated()) continue;
    if (field->real_containing_oneof() != nullptr &&
        field->real_containing_oneof()->field(0) != field) {
      continue;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        if (auto value = values.find(field->name()); value != values.end()) {
          reflection->SetString(message, field, value->second);
        } else if (field->type() == FieldDescriptor::TYPE_BYTES) {
          reflection->SetString(message, field, "intruder");
        }
        break;
      case FieldDescriptor::CPPTYPE_INT32:
        reflection->SetInt32(message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection->SetInt64(message, field, 1);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection->SetBool(message, field, true);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (depth < kMaxDepth) {
          Fill(reflection->MutableMessage(message, field), values, depth + 1);
        }
        break;
      default:
        break;
    }
  }
}

}  // namespace

std::vector<RemoteMethod> AllMethods(
    const std::map<std::string, std::string>& values) {
  std::vector<RemoteMethod> methods;
  google::protobuf::DynamicMessageFactory factory;
  for (const FileDescriptor* file :
       {v1::RenewLeaseRequest::descriptor()->file(),
        v1::CallFrame::descriptor()->file(),
        v1::ObjectChunk::descriptor()->file(),
        v1::ReportRunRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      const ServiceDescriptor* const service = file->service(s);
      for (int m = 0; m < service->method_count(); ++m) {
        const MethodDescriptor* const method = service->method(m);
        const std::unique_ptr<Message> request(
            factory.GetPrototype(method->input_type())->New());
        Fill(request.get(), values, 0);
        methods.push_back(
            {service->name(), method->name(),
             absl::StrCat("/", service->full_name(), "/", method->name()),
             request->SerializeAsString()});
      }
    }
  }
  return methods;
}

CallResult CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& path, const std::string& request,
                   const std::string* token,
                   const std::map<std::string, std::string>& metadata) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kCallTimeout));
  if (token != nullptr) context.AddMetadata(kTokenKey, *token);
  if (!metadata.contains(kVersionKey)) {
    context.AddMetadata(kVersionKey, kVersion);
  }
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  const auto call = stub.PrepareCall(&context, path, &queue);
  // One operation after the other; false where it failed.
  auto done = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    CHECK(queue.Next(&tag, &ok));
    return ok;
  };
  CallResult result;
  call->StartCall(&queue);
  if (done()) {
    const grpc::Slice slice(request);
    call->Write(grpc::ByteBuffer(&slice, 1), &queue);
    if (done()) {
      call->WritesDone(&queue);
      done();
    }
    while (true) {
      grpc::ByteBuffer buffer;
      call->Read(&buffer, &queue);
      if (!done()) break;
      result.bytes_read += buffer.Length() + 1;
    }
  }
  call->Finish(&result.status, &queue);
  done();
  return result;
}

std::shared_ptr<grpc::Channel> PlainChannel(const std::string& address) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   args);
}

std::shared_ptr<grpc::Channel> TlsChannel(const std::string& address,
                                          const std::string& trusted_dir,
                                          const std::string& own_dir) {
  grpc::ChannelArguments args;
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetSslTargetNameOverride("miniray");
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = Slurp(trusted_dir + "/ca.crt");
  if (!own_dir.empty()) {
    options.pem_private_key = Slurp(own_dir + "/node.key");
    options.pem_cert_chain = Slurp(own_dir + "/node.crt");
  }
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options),
                                   args);
}

class Impostor::Service : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    ++calls;
    return grpc::CallbackGenericService::CreateReactor(context);
  }
  std::atomic<int> calls = 0;
};

Impostor::Impostor(const std::string& dir, int port)
    : service_(std::make_unique<Service>()) {
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
  options.pem_key_cert_pairs.push_back(
      {Slurp(dir + "/node.key"), Slurp(dir + "/node.crt")});
  grpc::ServerBuilder builder;
  builder.AddListeningPort(absl::StrCat("127.0.0.1:", port),
                           grpc::SslServerCredentials(options), &port_);
  builder.RegisterCallbackGenericService(service_.get());
  server_ = builder.BuildAndStart();
  CHECK(server_ != nullptr) << "port " << port;
}

Impostor::~Impostor() { server_->Shutdown(absl::ToChronoTime(absl::Now())); }

std::string Impostor::address() const {
  return absl::StrCat("127.0.0.1:", port_);
}

int Impostor::calls() const { return service_->calls; }

std::map<std::string, std::string> FilesBelow(const std::string& folder) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator entry(folder, error), end;
       !error && entry != end; entry.increment(error)) {
    if (entry->is_regular_file(error)) {
      files[entry->path().string()] = Slurp(entry->path().string());
    }
  }
  return files;
}

bool IsLog(const std::string& path) {
  return absl::StrContains(path, "/stderr.") || absl::EndsWith(path, ".log");
}

int CountLines(const std::string& folder, absl::string_view text) {
  int lines = 0;
  for (const auto& [path, contents] : FilesBelow(folder)) {
    if (!IsLog(path)) continue;
    for (absl::string_view line : absl::StrSplit(contents, '\n')) {
      lines += absl::StrContains(line, text) ? 1 : 0;
    }
  }
  return lines;
}

int SendRaw(const std::string& address, absl::string_view bytes) {
  const HostPort host_port = ParseHostPort(address).value();
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(host_port.port));
  CHECK_EQ(inet_pton(AF_INET, host_port.host.c_str(), &target.sin_addr), 1);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof(target)) != 0) {
    close(fd);
    return -1;
  }
  // A server that reads no further must not block us.
  const timeval send_timeout = {0, 50000}, read_timeout = {0, 5000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(timeval));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &read_timeout, sizeof(timeval));
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) break;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  char buffer[4096];
  (void)!recv(fd, buffer, sizeof(buffer), 0);
  return fd;
}

bool ClosedByPeer(int fd) {
  char buffer[4096];
  while (true) {
    const ssize_t n = recv(fd, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n > 0) continue;
    return n == 0 || (errno != EAGAIN && errno != EINTR);
  }
}

int64_t ResidentBytes(int64_t pid) {
  const std::string statm = Slurp(absl::StrCat("/proc/", pid, "/statm"));
  const std::vector<std::string> fields = absl::StrSplit(statm, ' ');
  int64_t pages = 0;
  if (fields.size() < 2 || !absl::SimpleAtoi(fields[1], &pages)) return -1;
  return pages * sysconf(_SC_PAGESIZE);
}

}  // namespace miniray
