#include "config/show.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "catch.hpp"
#include "fake_plugins.hpp"
#include "tools/commands/config_command.hpp"

namespace strata::config {
namespace {

const std::vector<Resolved> kListing{{"a", "1", "x.yaml:1"}, {"long.key", "é, \"q\"|", "--set"}, {"e", "", "d"}};

}  // namespace

TEST_CASE("A table is aligned by characters") {
  CHECK(format_listing(kListing, ListingFormat::Table) ==
        "key       value    origin\n"
        "--------  -------  --------\n"
        "a         1        x.yaml:1\n"
        "long.key  é, \"q\"|  --set\n"
        "e                  d\n");
  CHECK(format_listing(kListing, ListingFormat::Markdown) ==
        "| key      | value    | origin   |\n"
        "| -------- | -------- | -------- |\n"
        "| a        | 1        | x.yaml:1 |\n"
        "| long.key | é, \"q\"\\| | --set    |\n"
        "| e        |          | d        |\n");
}

TEST_CASE("CSV and JSON can be read back") {
  CHECK(format_listing(kListing, ListingFormat::Csv) ==
        "key,value,origin\na,1,x.yaml:1\nlong.key,\"é, \"\"q\"\"|\",--set\ne,,d\n");
  const nlohmann::json rows = nlohmann::json::parse(format_listing(kListing, ListingFormat::Json));
  CHECK(rows.size() == 3);
  CHECK(rows[1]["value"] == "é, \"q\"|");
  CHECK(format_listing({}, ListingFormat::Json) == "[]\n");
  CHECK(error_of([] { listing_format("jsn"); }) == "--format: unknown format \"jsn\"; did you mean json?");
}

TEST_CASE("strata config show prints every value and its origin") {
  const std::string file =
      write_file("show.yaml",
                 "model: {plugin: gpt_neox, seq_len: 128}\ndata: {path: x.bin}\ntrain: {steps: 10, micro_batch: 4}\n"
                 "learning_rate: {base: 1e-3}\n");
  std::string asked_path;
  const cli::ResolveConfig resolve_it = [&](const std::vector<Node>& layers, const World& world) {
    asked_path = plugin_path(layers);
    return resolve(layers, world, FakePlugins());
  };
  std::ostringstream output;
  cli::ConfigShow arguments;
  arguments.file = file;
  arguments.settings = {"train.accumulation=3", "plugin_path=/p"};
  arguments.world = {2, "--nproc"};
  arguments.format = "csv";
  cli::config_show(arguments, resolve_it, output);
  CHECK(asked_path == "/p");
  CHECK(output.str().find("\ntrain.accumulation,3,--set\n") != std::string::npos);
  CHECK(output.str().find("\ntrain.global_batch,24,micro_batch x accumulation x data-parallel size 2\n") !=
        std::string::npos);
  CHECK(output.str().find("\nlearning_rate.base,0.001,show.yaml:4\n") != std::string::npos);
}

}  // namespace strata::config
