// The strategies that this program knows, by name.
//
// One line beside the class makes a strategy known, in the program or in a
// plug-in:
//
//   MINIRAY_SYNC_STRATEGY("median", MedianStrategy);
//
// The class has a default constructor. A strategy with options has instead
//
//   static std::vector<OptionSpec> Options();       // what it takes
//   explicit Class(const OptionMap& options);       // checked and complete
//
// and is never constructed with options that Options() does not allow. What
// options mean together it may check, too:
//
//   static absl::Status CheckOptions(const OptionMap& options);

#ifndef MINIRAY_PS_STRATEGY_REGISTRY_H_
#define MINIRAY_PS_STRATEGY_REGISTRY_H_

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "ps/gradient_strategy.h"
#include "ps/option_map.h"
#include "ps/sync_strategy.h"
#include "runtime/base/plugin_abi.h"
#include "runtime/base/status_macros.h"

#define MINIRAY_SYNC_STRATEGY(name, Class)                                    \
  [[maybe_unused]] static const bool MR_CONCAT_(miniray_strategy_registered_, \
                                                __COUNTER__) =                \
      ::miniray::ps::internal::RegisterStrategy<Class>(name)

namespace miniray::ps {

// Options of a strategy, e.g. {{"momentum", 0.9}}.
using StrategyOptions = OptionMap;

// One option that a strategy takes.
struct OptionSpec {
  // One that ends in "." stands for all options that begin with it; they have
  // no default, and the class checks them.
  std::string name;
  OptionValue default_value;  // Its type is the option's.
  std::string help;           // Half a sentence.
  // Bounds of integers and numbers.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool max_allowed = true;  // False: [min, max).
  bool min_allowed = true;  // False: (min, max].
  // No text that others may see has the value: statistics, errors, dashboards.
  bool secret = false;

  // "momentum (number in [0, 1), default 0.9): help".
  std::string ToString() const;
};

// Thread-safe.
class StrategyRegistry {
 public:
  struct Entry {
    std::string class_name;
    bool takes_gradients = false;
    std::vector<OptionSpec> options;
    std::function<absl::Status(const StrategyOptions&)> check;
    std::function<std::unique_ptr<SyncStrategy>(const StrategyOptions&)> make;
  };

  static StrategyRegistry& Get();

  // A second class under a name makes the name unusable (Create says so); the
  // same class again is ignored.
  void Register(absl::string_view name, Entry entry) ABSL_LOCKS_EXCLUDED(mu_);

  std::vector<std::string> Names() const ABSL_LOCKS_EXCLUDED(mu_);

  // Those that take gradients, or those that take weights.
  std::vector<std::string> NamesTaking(bool gradients) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // Makes the strategy `name`; options that are left out have their defaults.
  //
  // Errors: INVALID_ARGUMENT, no such strategy (with those that there are), or
  // an option is unknown, of the wrong type or out of range (with those that
  // are allowed), or the class says that it takes gradients and is no
  // GradientStrategy. FAILED_PRECONDITION, two classes claim the name.
  // INTERNAL, the class threw.
  absl::StatusOr<std::unique_ptr<SyncStrategy>> Create(
      absl::string_view name, const StrategyOptions& options) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // All options that Create makes it with, of the types that they have.
  // Errors: of Create, but for those of making it.
  absl::StatusOr<StrategyOptions> Complete(absl::string_view name,
                                           const StrategyOptions& options) const
      ABSL_LOCKS_EXCLUDED(mu_);

  // "momentum (momentum=0.9)": with these options, but without secret ones.
  std::string Describe(absl::string_view name,
                       const StrategyOptions& options) const
      ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // Errors: INVALID_ARGUMENT and FAILED_PRECONDITION as of Create.
  absl::StatusOr<Entry> Find(absl::string_view name) const
      ABSL_LOCKS_EXCLUDED(mu_);

  mutable absl::Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ ABSL_GUARDED_BY(mu_);
  // Name -> classes that claim it beside the first.
  std::map<std::string, std::string, std::less<>> conflicts_
      ABSL_GUARDED_BY(mu_);
};

namespace internal {

// code: a function of the shared object that has the class. Others may have
// classes of the same name in unnamed namespaces: these have its file, too.
std::string StrategyClassName(const std::type_info& type, const void* code);

template <class Class>
bool RegisterStrategy(absl::string_view name) {
  static_assert(std::is_base_of_v<SyncStrategy, Class>,
                "a synchronisation strategy derives from ps::SyncStrategy");
  StrategyRegistry::Entry entry;
  entry.class_name = StrategyClassName(
      typeid(Class), reinterpret_cast<const void*>(&RegisterStrategy<Class>));
  entry.takes_gradients = std::is_base_of_v<GradientStrategy, Class>;
  if constexpr (requires { Class::Options(); }) {
    entry.options = Class::Options();
    entry.make = [](const StrategyOptions& options) {
      return std::make_unique<Class>(options);
    };
  } else {
    entry.make = [](const StrategyOptions&) {
      return std::make_unique<Class>();
    };
  }
  if constexpr (requires(const StrategyOptions& o) {
                  Class::CheckOptions(o);
                }) {
    entry.check = &Class::CheckOptions;
  } else {
    entry.check = [](const StrategyOptions&) { return absl::OkStatus(); };
  }
  StrategyRegistry::Get().Register(name, std::move(entry));
  return true;
}

}  // namespace internal
}  // namespace miniray::ps

#endif  // MINIRAY_PS_STRATEGY_REGISTRY_H_
