// The dashboard's pages: the files of assets/ and Chart.js, made part of the
// program by the build (embed_assets.sh).

#ifndef MINIRAY_RUNTIME_DASHBOARD_ASSETS_H_
#define MINIRAY_RUNTIME_DASHBOARD_ASSETS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace miniray {

struct EmbeddedFile {
  absl::string_view name;  // "app.js"
  absl::string_view bytes;
};

// All of them. Defined by what embed_assets.sh writes.
std::vector<EmbeddedFile> EmbeddedFiles();

// "text/css; charset=utf-8", by the ending of the name.
const char* ContentTypeOf(absl::string_view name);

// An entity tag, in quotes: another one for other bytes.
std::string EntityTagOf(absl::string_view bytes);

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_ASSETS_H_
