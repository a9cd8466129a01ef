// Statistics of a data set on the disk, so that the next evaluation need not
// look at its images again.

#ifndef MINIRAY_ML_METRICS_STATISTICS_CACHE_H_
#define MINIRAY_ML_METRICS_STATISTICS_CACHE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ml/metrics/feature_statistics.h"

namespace miniray::ml {

// Lower-case hex SHA-256.
std::string Sha256(absl::string_view bytes);

// The file for what `key` describes: FOLDER/real-HASH.stats.
//
// key: all that the statistics depend on, in words.
std::string StatisticsPath(const std::string& folder, const std::string& key);

// Writes the file whole or not at all, and the folder if need be.
// Errors: the system's, with the path.
absl::Status StoreStatistics(const std::string& folder, const std::string& key,
                             const FeatureStatistics& statistics);

// Errors: NOT_FOUND, there is no such file. DATA_LOSS, it is damaged, or of
// another key; with the path, and what is wrong. Others of the system.
absl::StatusOr<FeatureStatistics> LoadStatistics(const std::string& folder,
                                                 const std::string& key);

}  // namespace miniray::ml

#endif  // MINIRAY_ML_METRICS_STATISTICS_CACHE_H_
