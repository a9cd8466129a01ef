// Debian's Chromium without a window, as a person sees and drives it: through
// chromedriver, by W3C's WebDriver protocol.

#ifndef MINIRAY_TESTS_INTEGRATION_BROWSER_H_
#define MINIRAY_TESTS_INTEGRATION_BROWSER_H_

#include <httplib.h>
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/integration/process_tools.h"

namespace miniray {

// One window with one tab, and a profile of its own. What the browser answers
// with an error is an INTERNAL one here, with its words. Not thread-safe.
class Browser {
 public:
  // Keys, for Press.
  static constexpr char kTab[] = "\uE004";
  static constexpr char kEnter[] = "\uE007";
  static constexpr char kShift[] = "\uE008";

  // What scripts wait for, at most.
  static constexpr absl::Duration kPatience = absl::Seconds(60);

  // A line of the page's console.
  struct ConsoleLine {
    std::string level;   // "SEVERE", "WARNING", "INFO"
    std::string source;  // "network", "security", "javascript", "console-api"
    std::string text;
  };

  // Errors: FAILED_PRECONDITION, it is not installed. UNAVAILABLE, it does not
  // start.
  static absl::StatusOr<std::unique_ptr<Browser>> Start();

  // Kills what is left.
  ~Browser();

  // Ends it. Errors: INTERNAL, processes of it were left, which it names and
  // kills. Idempotent.
  absl::Status Quit();

  // Returns once the page is loaded; what its scripts fetch may still come.
  absl::Status Open(const std::string& url);

  // Runs the body of a JavaScript function in the page; returns what that does.
  absl::StatusOr<nlohmann::json> Run(const std::string& body);

  // Runs it again and again until it returns something that is true, which it
  // returns; an exception counts as false. The page must not be left meanwhile.
  // Errors: DEADLINE_EXCEEDED, with the page's text.
  absl::StatusOr<nlohmann::json> Await(const std::string& body);

  // A key to what has the focus, beneath others that are held.
  absl::Status Press(const std::string& key,
                     const std::vector<std::string>& held = {});
  // ASCII.
  absl::Status Type(const std::string& text);

  // The page's size, in its own pixels; below 600 it is a phone's.
  absl::Status Resize(int width, int height);
  // "dark" or "light": what the person prefers.
  absl::Status PreferColours(const std::string& scheme);
  // What is seen of the page, as PNG.
  absl::Status SavePicture(const std::string& path);

  // What came since the last time.
  absl::StatusOr<std::vector<ConsoleLine>> TakeConsole();
  // The addresses of what pages asked for since the last time, also in vain.
  absl::StatusOr<std::vector<std::string>> TakeRequests();

 private:
  Browser() = default;

  absl::Status StartDriver();
  absl::Status StartSession();
  // The "value" of the answer; body: null: without one.
  absl::StatusOr<nlohmann::json> Ask(const std::string& method,
                                     const std::string& path,
                                     const nlohmann::json& body = {});
  // Of Chrome's own protocol.
  absl::Status Command(const std::string& name, nlohmann::json parameters);
  absl::StatusOr<nlohmann::json> TakeLog(const std::string& type);
  // The driver's and the browser's processes that live.
  std::vector<pid_t> Living() const;

  // Below /tmp: the browser puts a socket into it, whose path may have 107
  // bytes.
  std::string folder_;
  ProcessTree tree_;
  std::unique_ptr<ProcessTree::Child> driver_;  // Null before and behind it.
  pid_t group_ = 0;                             // Of its processes.
  std::unique_ptr<httplib::Client> client_;
  std::string session_;  // "/session/ID"; empty: none.
};

}  // namespace miniray

#endif  // MINIRAY_TESTS_INTEGRATION_BROWSER_H_
