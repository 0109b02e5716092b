// The keys of the token files that are trained and validated on.
#include "outcome.hpp"

namespace strata::config {

TEST_CASE("Unset validation keys take the data's values") {
  const RunConfig none = resolved({minimal_config});
  CHECK(none.validation.data.path.empty());
  const RunConfig run = resolved({minimal_config, "validation: {path: val.u32.bin, every: 50}\n"});
  CHECK(run.validation.data.path == "val.u32.bin");
  CHECK(run.validation.data.plugin.name == "nanogpt");
  CHECK(run.plugins().size() == 10);
  CHECK(row(run, "validation.plugin").origin == "data.plugin");
  CHECK(run.validation.data.order == DataOrder::Sequential);
  CHECK(run.validation.every == 50);
  CHECK(run.validation.samples == 0);
  CHECK(row(run, "validation.samples").value == "auto");
  const auto token_type = [](const std::string& validation, const std::string& data) {
    const RunConfig config = resolved({minimal_config, validation}, {data});
    return std::get<std::string>(config.validation.data.plugin.options.value("token_type"));
  };
  CHECK(token_type("validation: {path: v}", "data.token_type=u16") == "u16");
  CHECK(token_type("validation: {path: v}", "data.token_type=u32") == "u32");
  CHECK(token_type("validation: {path: v, token_type: u16}", "data.token_type=u32") == "u16");
  CHECK(token_type("validation: {path: v, nanogpt: {token_type: u32}}", "data.token_type=u16") == "u32");
  CHECK(token_type("validation: {path: v, plugin: nanogpt}", "data.token_type=u32") == "u16");  // all its own
  CHECK(resolved({minimal_config, "validation: {path: v, plugin: megatron}"}).validation.data.plugin.name ==
        "megatron");
  CHECK(resolved({minimal_config, "validation: {path: v, samples: 7, token_type: u16}"}).validation.samples == 7);
  CHECK(error("validation: {every: 50}") ==
        "t.yaml:5:21: validation.every is 50, which has no effect: validation.path is empty; set validation.path, or "
        "leave validation.every out");
  CHECK(error("validation: {path: v, samples: 0}").find("validation.samples") != std::string::npos);
  CHECK(error("validation: {path: v, evry: 2}") ==
        "t.yaml:5:23: unknown option \"validation.nanogpt.evry\"; did you mean every?");
}

TEST_CASE("data: a plugin with its options, and an order of its own") {
  const auto token_type = [](const std::string& setting) {
    return std::get<std::string>(resolved({minimal_config}, {setting}).data.plugin.options.value("token_type"));
  };
  CHECK(token_type("data.token_type=u32") == "u32");
  CHECK(token_type("data.nanogpt.token_type=u16") == "u16");
  CHECK(error("", {"data.token_type=u64"}).find("it must be one of u16, u32") != std::string::npos);
  const RunConfig run = resolved({minimal_config, "validation: {path: v}"}, {"data.plugin=llm_c"});
  CHECK(run.data.plugin.name == "llm_c");
  CHECK(run.validation.data.plugin.name == "llm_c");
  CHECK(error("", {"data.plugin=llm_c", "data.token_type=u16"}).find("unknown option") != std::string::npos);
  CHECK(resolved({minimal_config}, {"data.plugin=megatron", "data.order=shuffled"}).data.order == DataOrder::Shuffled);
  CHECK(resolved({minimal_config}, {"data.plugin=megatron", "data.order=own"}).data.order == DataOrder::Own);
  CHECK(error("", {"data.order=own"}) ==
        "--set: data.order is own, and data/nanogpt has no order of its own: this order is defined by a data plugin; "
        "set data.order: sequential or shuffled, or choose a data plugin that declares own_order");
  CHECK(error("", {"data.plugin=parquet"}).find("no data plugin \"parquet\"") != std::string::npos);
}

TEST_CASE("documents that do not share a sample") {
  const auto ends = [](const std::string& text, const std::vector<std::string>& settings) {
    const RunConfig run = resolved({minimal_config, text}, settings);
    return std::pair(run.data.document_end, run.validation.data.document_end);
  };
  using Ends = std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>;
  const std::string validation = "validation: {path: v}";
  const std::string separate = "data.documents=separate";
  CHECK(ends(validation, {}) == Ends{});
  CHECK(ends("", {separate, "data.document_end=3"}) == Ends{3, {}});
  CHECK(ends(validation, {separate, "data.document_end=3"}) == Ends{3, 3});
  CHECK(ends(validation, {separate, "data.document_end=3", "validation.document_end=4"}) == Ends{3, 4});
  CHECK(ends(validation, {separate, "data.document_end=3", "validation.documents=packed"}) == Ends{3, {}});
  CHECK(ends(validation, {"data.document_end=3", "validation.documents=separate"}) == Ends{{}, 3});
  CHECK(ends(validation, {"validation.document_end=4", "validation.documents=separate"}) == Ends{{}, 4});

  CHECK(row(resolved({minimal_config}), "data.documents").value == "packed");
  const RunConfig run = resolved({minimal_config, validation}, {separate, "data.document_end=3"});
  CHECK(row(run, "data.document_end").value == "3");
  CHECK(row(run, "validation.documents").origin == "data.documents");
  CHECK(row(run, "validation.document_end").origin == "data.document_end");

  CHECK(error("", {separate}) ==
        "--set: data.documents: separate, and data.document_end is not given: documents are separated by their end "
        "token; set data.document_end to its id, or data.documents: packed");
  CHECK(error(validation, {"validation.documents=separate"}).find("validation.document_end is not given") !=
        std::string::npos);
  CHECK(error("", {separate, "data.document_end=3", "data.plugin=megatron", "data.order=own"}) ==
        "--set: data.documents is separate, and data.order is own: the plugin's own order decides which tokens a "
        "sample holds; set data.documents: packed, or set data.order: sequential or shuffled");
  CHECK(error("", {"data.documents=apart"}).find("it must be one of packed, separate") != std::string::npos);
  CHECK(error("", {separate, "data.document_end=-1"}).find("data.document_end") != std::string::npos);
}

TEST_CASE("data.format is refused with the key that replaces it") {
  CHECK(error("", {"data.format=llm.c"}) ==
        "--set: data.format was renamed data.plugin; `strata plugins list` prints its values");
  CHECK(error("validation: {path: v, format: llm.c}").find("validation.format was renamed validation.plugin") !=
        std::string::npos);
  CHECK(error("", {"data.order=megatron"}).find("it must be one of sequential, shuffled, own") != std::string::npos);
}

}  // namespace strata::config
