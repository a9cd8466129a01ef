// What somebody on the network may try: calls of any method with any metadata
// over any kind of connection, and raw bytes.

#ifndef MINIRAY_TESTS_INTEGRATION_INTRUDER_H_
#define MINIRAY_TESTS_INTEGRATION_INTRUDER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/server.h"
#include "grpcpp/support/status.h"

namespace miniray {

// A method of one of the runtime's services, as the descriptors have it: a new
// one is tried without anybody remembering it.
struct RemoteMethod {
  std::string service;  // "Head"
  std::string name;     // "CreateActor"
  std::string path;     // "/miniray.v1.Head/CreateActor"
  std::string request;  // A serialized request that would do something.
};

// All methods of all services. Every string field of a request whose name is in
// `values` has that value, wherever it lies; numbers are 1.
std::vector<RemoteMethod> AllMethods(
    const std::map<std::string, std::string>& values);

struct CallResult {
  grpc::Status status;
  size_t bytes_read = 0;
};

// Calls `path` with one request and reads all that comes back.
// token: null: none. The caller's version is this one's, if not in `metadata`.
CallResult CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                   const std::string& path, const std::string& request,
                   const std::string* token,
                   const std::map<std::string, std::string>& metadata = {});

// Channels that do not share a connection with any other.
std::shared_ptr<grpc::Channel> PlainChannel(const std::string& address);
// Trusts the authority in `trusted_dir`; shows the certificate of `own_dir`,
// none if empty. What is wrong with them is the other side's to notice.
std::shared_ptr<grpc::Channel> TlsChannel(const std::string& address,
                                          const std::string& trusted_dir,
                                          const std::string& own_dir);

// A server that shows the certificate in `dir`, whatever is wrong with it, asks
// clients for none, and counts what it is told.
class Impostor {
 public:
  // port: of 127.0.0.1, on which nobody listens; 0: any that is free.
  explicit Impostor(const std::string& dir, int port = 0);
  ~Impostor();

  std::string address() const;
  int calls() const;  // That have arrived.

 private:
  class Service;
  const std::unique_ptr<Service> service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The contents of every file below `folder`, by path.
std::map<std::string, std::string> FilesBelow(const std::string& folder);

// True for the files that processes log to (packages hold any text).
bool IsLog(const std::string& path);

// How many lines in the logs below `folder` contain `text`.
int CountLines(const std::string& folder, absl::string_view text);

// Whether the other end has closed the connection that SendRaw returned.
bool ClosedByPeer(int fd);

// Sends `bytes` to "HOST:PORT" and reads a little of what comes back. Returns
// the socket, which stays open; -1: no connection.
int SendRaw(const std::string& address, absl::string_view bytes);

// Resident memory of a process in bytes; -1: there is no such process.
int64_t ResidentBytes(int64_t pid);

}  // namespace miniray

#endif  // MINIRAY_TESTS_INTEGRATION_INTRUDER_H_
