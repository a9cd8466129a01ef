// Plug-ins: real shared objects, good ones and such that do not fit.

#include "runtime/actor/plugins.h"

#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/files.h"
#include "runtime/base/version.h"
#include "tests/runtime/base/temp_folder.h"
#include "tests/runtime/test_cluster.h"

namespace miniray {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(30);

class Host {
 public:
  bool Knows(const std::string& class_name) {
    return internal::ActorRegistry::Get().Find(class_name).ok();
  }
  bool Inherits();
};
MINIRAY_ACTOR(Host, Constructor<>, &Host::Knows, &Host::Inherits);

// An actor that this actor creates has the plug-ins too.
bool Host::Inherits() {
  auto other =
      ActorContext::Current()->cluster().CreateActor<Host>({.resources = {}});
  return other->Call<&Host::Knows>("miniray::Guest").Get(kLong).value();
}

std::string Built(const std::string& name) {
  return absl::StrCat(getenv("TEST_SRCDIR"), "/", getenv("TEST_WORKSPACE"),
                      "/tests/runtime/worker/", name);
}

class PluginsTest : public testing::Test {
 protected:
  ~PluginsTest() override { internal::ProgramPlugins().clear(); }

  std::string Write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return path;
  }
  std::string OfAnotherVersion() {
    return Write("libold.so",
                 absl::StrReplaceAll(
                     *ReadFile(Built("libguest_plugin.so")),
                     {{absl::StrCat("<miniray-plugin-abi:miniray ", kVersion),
                       "<miniray-plugin-abi:miniray 9.8.7"}}));
  }
  std::string OfAnotherMachine() {
    std::string bytes = *ReadFile(Built("libguest_plugin.so"));
    reinterpret_cast<Elf64_Ehdr*>(bytes.data())->e_machine = EM_AARCH64;
    return Write("libarm.so", bytes);
  }

  // As if this program had been started with it, without loading it here.
  static void Give(const std::string& path, const std::string& name) {
    internal::ProgramPlugins().push_back({.path = path, .name = name});
  }

  // What an actor's caller is told.
  static std::string RefusalOnTheNode(const std::string& path) {
    TestCluster cluster;
    Cluster driver = cluster.Connect();
    Give(path, "libgiven.so");
    auto actor = driver.CreateActor<Host>({.max_restarts = 3});
    EXPECT_TRUE(actor.ok()) << actor.status();
    const absl::Status status =
        actor->Call<&Host::Knows>("miniray::Guest").Get(kLong).status();
    EXPECT_EQ(cluster.Info(*actor).restarts(), 0);
    // The daemon goes on.
    internal::ProgramPlugins().clear();
    auto other = driver.CreateActor<Host>({});
    EXPECT_TRUE(other->WaitReady(kLong).ok());
    return std::string(status.message());
  }

  TempFolder folder_;
};

TEST_F(PluginsTest, ItTravelsWithTheProgram) {
  TestCluster cluster;
  Cluster driver = cluster.Connect();
  auto without = driver.CreateActor<Host>({});
  EXPECT_FALSE(*without->Call<&Host::Knows>("miniray::Guest").Get(kLong));
  Give(Built("libguest_plugin.so"), "libguest_plugin.so");
  auto with = driver.CreateActor<Host>({});
  EXPECT_TRUE(*with->Call<&Host::Knows>("miniray::Guest").Get(kLong));
  EXPECT_TRUE(*with->Call<&Host::Inherits>().Get(kLong));
  // A process of its own start, without a template.
  auto plain = driver.CreateActor<Host>({.env = {{"A", "b"}}});
  EXPECT_TRUE(*plain->Call<&Host::Knows>("miniray::Guest").Get(kLong));
}

TEST_F(PluginsTest, AnUnresolvedSymbolIsNamed) {
  const std::string path = Built("libbroken_plugin.so");
  for (const std::string& message :
       {internal::LoadPlugin(path, "libgiven.so").ToString(),
        RefusalOnTheNode(path)}) {
    EXPECT_THAT(message, AllOf(HasSubstr("plug-in libgiven.so"),
                               HasSubstr("elsewhere::NobodyHasThis(int)")));
  }
}

TEST_F(PluginsTest, AnotherVersionIsNamed) {
  const std::string path = OfAnotherVersion();
  for (const std::string& message :
       {internal::LoadPlugin(path, "libgiven.so").ToString(),
        RefusalOnTheNode(path)}) {
    EXPECT_THAT(
        message,
        AllOf(HasSubstr("plug-in libgiven.so"), HasSubstr("miniray 9.8.7"),
              HasSubstr(absl::StrCat("this program is \"miniray ", kVersion))));
  }
}

TEST_F(PluginsTest, AnotherCxxAbiIsNamed) {
  const std::string path = Built("libold_abi_plugin.so");
  for (const std::string& message :
       {internal::LoadPlugin(path, "libgiven.so").ToString(),
        RefusalOnTheNode(path)}) {
    EXPECT_THAT(message,
                AllOf(HasSubstr("plug-in libgiven.so"),
                      ContainsRegex("built for .*C\\+\\+ ABI [0-9]+/0"),
                      ContainsRegex("this program is .*/1,")));
  }
}

TEST_F(PluginsTest, AnotherArchitectureIsNamed) {
  const std::string path = OfAnotherMachine();
  for (const std::string& message :
       {internal::LoadPlugin(path, "libgiven.so").ToString(),
        RefusalOnTheNode(path)}) {
    EXPECT_THAT(message, AllOf(HasSubstr("plug-in libgiven.so"),
                               HasSubstr("AArch64 (64 bits)")));
  }
}

TEST_F(PluginsTest, AMissingLibraryIsNamed) {
  const std::string bytes = *ReadFile(Built("libguest_plugin.so"));
  const std::string renamed =
      absl::StrReplaceAll(bytes, {{"libstdc++.so.6", "libstdc--.so.6"}});
  ASSERT_NE(renamed, bytes);
  const std::string path = Write("libneedy.so", renamed);
  for (const std::string& message :
       {internal::LoadPlugin(path, "libgiven.so").ToString(),
        RefusalOnTheNode(path)}) {
    EXPECT_THAT(
        message,
        AllOf(HasSubstr("plug-in libgiven.so"),
              HasSubstr("libstdc--.so.6: cannot open shared object file")));
  }
}

TEST_F(PluginsTest, WhatIsNoPluginIsRefused) {
  EXPECT_THAT(
      internal::LoadPlugin(Built("libno_plugin.so"), "a").ToString(),
      HasSubstr("it is no plug-in: it must include runtime/api/miniray.h"));
  EXPECT_THAT(internal::LoadPlugin(Write("b.so", "text"), "b").ToString(),
              HasSubstr("it is no shared object"));
  EXPECT_EQ(internal::LoadPlugin(folder_.path() + "/none.so", "c").code(),
            absl::StatusCode::kNotFound);
}

TEST_F(PluginsTest, FilesThatNoActorUsesLeaveAFullCache) {
  TestCluster cluster({.configure_node = [](WorkerDaemon::Options* options) {
    options->use_templates = false;
    options->package_cache_bytes = 1;
  }});
  Cluster driver = cluster.Connect();
  auto packages = [&] {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(
             cluster.NodeFolder(0) + "/packages")) {
      count += entry.is_regular_file();
    }
    return count;
  };
  auto stays = driver.CreateActor<Host>({.resources = {.cpu = 0}});
  ASSERT_TRUE(stays->WaitReady(kLong).ok());
  EXPECT_EQ(packages(), 1);
  const std::string bytes = *ReadFile(Built("libguest_plugin.so"));
  for (int i = 0; i < 4; ++i) {
    internal::ProgramPlugins().clear();
    Give(Write(absl::StrCat("lib", i, ".so"), bytes + std::string(i, ' ')),
         "libguest_plugin.so");
    auto guest = driver.CreateActor<Host>({});
    EXPECT_TRUE(*guest->Call<&Host::Knows>("miniray::Guest").Get(kLong));
    const int64_t pid = cluster.Info(*guest).pid();
    ASSERT_TRUE(guest->Kill().ok());
    ASSERT_TRUE(Eventually([&] { return !ProcessLives(pid); }));
  }
  // The program itself, the last plug-in, and one that was in use just before.
  EXPECT_LE(packages(), 3);
  // What was removed comes again.
  internal::ProgramPlugins().clear();
  Give(folder_.path() + "/lib0.so", "libguest_plugin.so");
  auto again = driver.CreateActor<Host>({});
  EXPECT_TRUE(*again->Call<&Host::Knows>("miniray::Guest").Get(kLong));
}

// This program, started with plug-ins.
std::string RunSelf(const std::string& before, const std::string& arguments) {
  const std::string command =
      absl::StrCat(before, " ", *ExecutablePath(), " ", arguments,
                   " --gtest_list_tests 2>&1; echo exit $?");
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  size_t n;
  while ((n = fread(buffer, 1, sizeof(buffer), pipe)) > 0) {
    text.append(buffer, n);
  }
  pclose(pipe);
  return text;
}

TEST_F(PluginsTest, AProgramTakesThemAtItsStart) {
  const std::string good = Built("libguest_plugin.so");
  EXPECT_THAT(RunSelf("", "--plugin " + good), HasSubstr("exit 0"));
  EXPECT_THAT(RunSelf("MINIRAY_PLUGINS=" + good, ""), HasSubstr("exit 0"));
  const std::string broken = Built("libbroken_plugin.so");
  for (const std::string& output :
       {RunSelf("", "--plugin=" + broken),
        RunSelf("MINIRAY_PLUGINS=" + good + ":" + broken, "")}) {
    EXPECT_THAT(output, AllOf(HasSubstr("plug-in libbroken_plugin.so"),
                              HasSubstr("NobodyHasThis"), HasSubstr("exit 2")));
  }
  EXPECT_THAT(RunSelf("", "--plugin /no/such.so"),
              AllOf(HasSubstr("/no/such.so"), HasSubstr("exit 2")));
}

}  // namespace
}  // namespace miniray

TEST_CLUSTER_MAIN()
