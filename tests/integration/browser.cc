#include "tests/integration/browser.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "runtime/base/files.h"
#include "runtime/base/status_macros.h"

namespace miniray {
namespace {

using Json = nlohmann::json;

constexpr char kChromium[] = "/usr/bin/chromium";
constexpr char kDriver[] = "/usr/bin/chromedriver";
constexpr absl::Duration kEndTimeout = absl::Seconds(20);

constexpr int kWidth = 1280;
constexpr int kHeight = 900;
constexpr int kMaxPhoneWidth = 600;

// Calls its last argument, which WebDriver gives it.
constexpr char kAwait[] = R"js(
const done = arguments[arguments.length - 1];
const wanted = () => {
%s
};
const look = () => {
  let found = false;
  try {
    found = wanted();
  } catch (error) {
    // Not there yet.
  }
  if (found) {
    done(found);
  } else {
    setTimeout(look, 50);
  }
};
look();
)js";

std::string Slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(file)), {});
}

std::string TextOf(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it != json.end() && it->is_string() ? it->get<std::string>() : "";
}

// Living processes of a process group. The browser's own processes overwrite
// their environment, where ProcessTree would look for its mark.
std::vector<pid_t> LivingInGroup(pid_t group) {
  std::vector<pid_t> living;
  if (group <= 0) return living;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry.path().filename().string(), &pid)) continue;
    // "PID (NAME) STATE PARENT GROUP ..."
    const std::string stat = Slurp(entry.path().string() + "/stat");
    const size_t name_end = stat.rfind(") ");
    if (name_end == std::string::npos) continue;
    std::istringstream fields(stat.substr(name_end + 2));
    std::string state;
    pid_t parent = 0, in = 0;
    fields >> state >> parent >> in;
    if (in == group && state != "Z" && state != "X") living.push_back(pid);
  }
  return living;
}

std::string Describe(pid_t pid) {
  const std::string command = Slurp(absl::StrCat("/proc/", pid, "/cmdline"));
  return absl::StrCat(pid, " (",
                      absl::StrReplaceAll(command.substr(0, 100),
                                          {{absl::string_view("\0", 1), " "}}),
                      ")");
}

Json KeyAction(const char* type, const std::string& key) {
  return {{"type", type}, {"value", key}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Browser>> Browser::Start() {
  for (const char* program : {kChromium, kDriver}) {
    if (access(program, X_OK) == 0) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(program,
                     " is not installed: Debian's packages chromium and "
                     "chromium-driver (tools/setup.sh installs them)"));
  }
  std::string folder = "/tmp/mr-browser-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    return ErrnoStatus(errno, absl::StrCat("make ", folder));
  }
  std::unique_ptr<Browser> browser = absl::WrapUnique(new Browser);
  browser->folder_ = folder;
  MR_RETURN_IF_ERROR(browser->StartDriver());
  MR_RETURN_IF_ERROR(browser->StartSession());
  MR_RETURN_IF_ERROR(browser->Resize(kWidth, kHeight));
  return browser;
}

absl::Status Browser::StartDriver() {
  for (const char* name : {"HOME", "TMPDIR", "XDG_CONFIG_HOME",
                           "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"}) {
    tree_.env()[name] = folder_;
  }
  // Else it may start a bus of its own, which stays.
  tree_.env()["DBUS_SESSION_BUS_ADDRESS"] = "disabled:";
  driver_ = tree_.Start({kDriver, "--port=0", "--log-level=WARNING"});
  group_ = driver_->pid();
  // "ChromeDriver was started successfully on port N."
  constexpr char kReady[] = "started successfully on port ";
  std::string line;
  do {
    line = driver_->ReadLine();
    if (line.empty()) {
      return absl::UnavailableError(absl::StrCat(
          kDriver, " does not start: ", Slurp(driver_->error_file())));
    }
  } while (!absl::StrContains(line, kReady));
  line = line.substr(line.find(kReady) + sizeof(kReady) - 1);
  int port = 0;
  if (!absl::SimpleAtoi(line.substr(0, line.find_first_not_of("0123456789")),
                        &port)) {
    return absl::UnavailableError(
        absl::StrCat(kDriver, " does not say its port but ", line));
  }
  client_ = std::make_unique<httplib::Client>("127.0.0.1", port);
  client_->set_read_timeout(
      static_cast<time_t>(absl::ToInt64Seconds(2 * kPatience)));
  return absl::OkStatus();
}

absl::Status Browser::StartSession() {
  const Json args = {
      "--headless=new",
      // Its own sandbox does not start as root, nor in most containers.
      "--no-sandbox",
      // A container's /dev/shm has 64 MiB.
      "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run",
      "--no-default-browser-check", "--no-proxy-server", "--disable-extensions",
      // It asks for nothing by itself.
      "--disable-background-networking", "--disable-component-update",
      "--disable-sync", "--disable-default-apps", "--lang=en-GB",
      absl::StrCat("--window-size=", kWidth, ",", kHeight),
      absl::StrCat("--user-data-dir=", folder_, "/profile")};
  const Json wanted = {
      {"browserName", "chrome"},
      {"timeouts", {{"script", absl::ToInt64Milliseconds(kPatience)}}},
      {"goog:loggingPrefs", {{"browser", "ALL"}, {"performance", "ALL"}}},
      {"goog:chromeOptions", {{"binary", kChromium}, {"args", args}}}};
  const absl::StatusOr<Json> answer =
      Ask("POST", "/session", {{"capabilities", {{"alwaysMatch", wanted}}}});
  if (!answer.ok()) {
    return absl::UnavailableError(
        absl::StrCat(kChromium, " does not start: ", answer.status().message(),
                     "; ", Slurp(driver_->error_file())));
  }
  session_ = absl::StrCat("/session/", TextOf(*answer, "sessionId"));
  return absl::OkStatus();
}

Browser::~Browser() { Quit().IgnoreError(); }

absl::Status Browser::Quit() {
  if (!session_.empty()) Ask("DELETE", session_).IgnoreError();
  session_.clear();
  client_.reset();
  absl::Status status;
  if (driver_ != nullptr) {
    driver_->Signal(SIGTERM);
    const absl::Time deadline = absl::Now() + kEndTimeout;
    std::vector<pid_t> left = Living();
    while (!left.empty() && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(20));
      left = Living();
    }
    if (!left.empty()) {
      std::string names;
      for (const pid_t pid : left) absl::StrAppend(&names, " ", Describe(pid));
      status = absl::InternalError(
          absl::StrCat("the browser has ended, and these have not:", names));
      for (const pid_t pid : left) kill(pid, SIGKILL);
    }
    driver_->Wait();
    driver_.reset();
  }
  std::error_code error;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
  folder_.clear();
  return status;
}

std::vector<pid_t> Browser::Living() const {
  std::vector<pid_t> living = LivingInGroup(group_);
  // Those that have a group of their own, but the mark: what reports crashes.
  for (const pid_t pid : tree_.Living()) {
    if (std::find(living.begin(), living.end(), pid) == living.end()) {
      living.push_back(pid);
    }
  }
  return living;
}

absl::StatusOr<Json> Browser::Ask(const std::string& method,
                                  const std::string& path, const Json& body) {
  if (client_ == nullptr) return absl::InternalError("the browser has ended");
  const std::string text = body.is_null() ? "{}" : body.dump();
  constexpr char kType[] = "application/json";
  httplib::Result result = method == "POST" ? client_->Post(path, text, kType)
                           : method == "DELETE" ? client_->Delete(path)
                                                : client_->Get(path);
  if (!result) {
    return absl::InternalError(absl::StrCat(
        method, " ", path,
        ": the driver does not answer: ", httplib::to_string(result.error())));
  }
  const Json answer = Json::parse(result->body, nullptr, false);
  if (!answer.is_object() || !answer.contains("value")) {
    return absl::InternalError(absl::StrCat(
        method, " ", path,
        ": no answer of WebDriver: ", result->body.substr(0, 200)));
  }
  const Json& value = answer["value"];
  if (result->status == 200) return value;
  std::string message = TextOf(value, "message");
  message = message.substr(0, message.find('\n'));
  return absl::InternalError(
      absl::StrCat(TextOf(value, "error"), ": ", message));
}

absl::Status Browser::Command(const std::string& name, Json parameters) {
  return Ask("POST", session_ + "/goog/cdp/execute",
             {{"cmd", name}, {"params", std::move(parameters)}})
      .status();
}

absl::Status Browser::Open(const std::string& url) {
  return Ask("POST", session_ + "/url", {{"url", url}}).status();
}

absl::StatusOr<Json> Browser::Run(const std::string& body) {
  return Ask("POST", session_ + "/execute/sync",
             {{"script", body}, {"args", Json::array()}});
}

absl::StatusOr<Json> Browser::Await(const std::string& body) {
  const std::string script = absl::StrReplaceAll(kAwait, {{"%s", body}});
  absl::StatusOr<Json> found =
      Ask("POST", session_ + "/execute/async",
          {{"script", script}, {"args", Json::array()}});
  if (found.ok()) return found;
  const absl::StatusOr<Json> page =
      Run("return location.href + '\\n' + document.body.innerText;");
  return absl::DeadlineExceededError(absl::StrCat(
      found.status().message(), "; waited for\n", body, "\nin the page\n",
      page.ok() && page->is_string() ? page->get<std::string>().substr(0, 4000)
                                     : std::string(page.status().message())));
}

absl::Status Browser::Press(const std::string& key,
                            const std::vector<std::string>& held) {
  Json actions = Json::array();
  for (const std::string& other : held) {
    actions.push_back(KeyAction("keyDown", other));
  }
  actions.push_back(KeyAction("keyDown", key));
  actions.push_back(KeyAction("keyUp", key));
  for (const std::string& other : held) {
    actions.push_back(KeyAction("keyUp", other));
  }
  const Json keyboard = {
      {"type", "key"}, {"id", "keyboard"}, {"actions", std::move(actions)}};
  return Ask("POST", session_ + "/actions",
             {{"actions", Json::array({keyboard})}})
      .status();
}

absl::Status Browser::Type(const std::string& text) {
  for (const char character : text) {
    MR_RETURN_IF_ERROR(Press(std::string(1, character)));
  }
  return absl::OkStatus();
}

absl::Status Browser::Resize(int width, int height) {
  return Command("Emulation.setDeviceMetricsOverride",
                 {{"width", width},
                  {"height", height},
                  {"deviceScaleFactor", 1},
                  {"mobile", width < kMaxPhoneWidth}});
}

absl::Status Browser::PreferColours(const std::string& scheme) {
  const Json feature = {{"name", "prefers-color-scheme"}, {"value", scheme}};
  return Command("Emulation.setEmulatedMedia",
                 {{"features", Json::array({feature})}});
}

absl::Status Browser::SavePicture(const std::string& path) {
  MR_ASSIGN_OR_RETURN(const Json answer, Ask("GET", session_ + "/screenshot"));
  std::string png;
  if (!answer.is_string() ||
      !absl::Base64Unescape(answer.get<std::string>(), &png) ||
      !absl::StartsWith(png, "\x89PNG")) {
    return absl::InternalError("the browser gave no picture");
  }
  return WriteFileAtomically(path, png);
}

absl::StatusOr<Json> Browser::TakeLog(const std::string& type) {
  MR_ASSIGN_OR_RETURN(Json entries,
                      Ask("POST", session_ + "/se/log", {{"type", type}}));
  if (entries.is_array()) return entries;
  return absl::InternalError("the browser gave no log");
}

absl::StatusOr<std::vector<Browser::ConsoleLine>> Browser::TakeConsole() {
  MR_ASSIGN_OR_RETURN(const Json entries, TakeLog("browser"));
  std::vector<ConsoleLine> lines;
  for (const Json& entry : entries) {
    lines.push_back({.level = TextOf(entry, "level"),
                     .source = TextOf(entry, "source"),
                     .text = TextOf(entry, "message")});
  }
  return lines;
}

absl::StatusOr<std::vector<std::string>> Browser::TakeRequests() {
  MR_ASSIGN_OR_RETURN(const Json entries, TakeLog("performance"));
  std::vector<std::string> urls;
  for (const Json& entry : entries) {
    // {"message": {"method", "params"}, "webview"}, as text.
    const Json event = Json::parse(TextOf(entry, "message"), nullptr, false);
    if (!event.is_object() || !event.contains("message")) {
      return absl::InternalError("no event of the browser's network: " +
                                 entry.dump().substr(0, 200));
    }
    const Json& message = event["message"];
    if (TextOf(message, "method") != "Network.requestWillBeSent") continue;
    urls.push_back(message["params"]["request"]["url"].get<std::string>());
  }
  return urls;
}

}  // namespace miniray
