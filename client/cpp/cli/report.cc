#include "client/cpp/cli/report.h"

#include <ostream>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/output.h"
#include "client/cpp/cli/output_file.h"
#include "client/cpp/page/collect.h"
#include "client/cpp/page/document.h"

namespace plumbline {

int report(Client& client, const PlumbOptions& options, const std::vector<std::string>& words, std::ostream& out,
           std::ostream& err) {
  if (words.size() != 1) return fail(err, absl::StrCat("report: expected the name of a job, found ", words.size()));
  if (options.output.empty()) return fail(err, "-o: expected a file to write, such as report.html");
  page::Page page;
  Collector collector(client, options.sources);
  absl::Status found = collector.head(options.server, &page);
  if (found.ok()) found = collector.job(options.project, words[0], options.with_reproducer, &page);
  if (!found.ok()) return fail(err, found);
  OutputFile file(options.output);
  file.sink()(page_html(page));
  const absl::Status written = file.commit();  // Says too where a write failed.
  if (!written.ok()) return fail(err, written);
  out << options.output << "\n";
  return kExitTypeI;
}

}  // namespace plumbline
