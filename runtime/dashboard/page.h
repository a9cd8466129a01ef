// The dashboard's page: page.html, made into a string by the build.

#ifndef MINIRAY_RUNTIME_DASHBOARD_PAGE_H_
#define MINIRAY_RUNTIME_DASHBOARD_PAGE_H_

namespace miniray {

extern const char kDashboardPage[];

}  // namespace miniray

#endif  // MINIRAY_RUNTIME_DASHBOARD_PAGE_H_
