// [Note: events, not nodes] yaml-cpp's Node silently takes the first of two equal keys, reads 010 as 8 and forgets
// places. Its event interface hides nothing.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "config/tree_builder.hpp"

namespace strata::config {
namespace {

class YamlEvents : public YAML::EventHandler {
 public:
  explicit YamlEvents(const SourceText& source) : source_(source), builder_(source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1)
      throw UserError(at(mark), "a second YAML document; a config is one document, remove the `---`");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (builder_.wants_key()) {
      builder_.key(at(mark), "");
    } else {
      remember(anchor, builder_.null(at(mark)));
    }
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (builder_.wants_key()) throw UserError(at(mark), "an alias cannot be a key");
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) throw UserError(at(mark), "{}an alias inside its own anchor", builder_.here());
    builder_.copy(found->second);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    if (builder_.wants_key()) {
      builder_.key(at(mark), value);
    } else {
      remember(anchor, builder_.scalar(at(mark), value, tag == "!"));
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor);
    builder_.begin_sequence(at(mark));
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor);
    builder_.begin_map(at(mark));
  }
  void OnSequenceEnd() override { end(); }
  void OnMapEnd() override { end(); }

  Node finish() { return builder_.finish(); }

 private:
  Place at(const YAML::Mark& mark) const { return source_.place(static_cast<std::size_t>(std::max(mark.pos, 0))); }

  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag != "?" && tag != "!" && !tag.empty())
      throw UserError(at(mark), "the tag {}: tags are not supported, leave it out", shown(tag));
  }

  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    check_tag(mark, tag);
    if (builder_.wants_key()) throw UserError(at(mark), "a list or a section cannot be a key; is a bracket missing?");
    open_anchors_.push_back(anchor);
  }

  void end() {
    const YAML::anchor_t anchor = open_anchors_.back();
    open_anchors_.pop_back();
    remember(anchor, builder_.end());
  }

  void remember(YAML::anchor_t anchor, const Node& node) {
    if (anchor == YAML::NullAnchor) return;
    anchored_values_ += weight(node);
    if (anchored_values_ > most_values) throw UserError(node.place, "more than {} values in anchors", most_values);
    anchored_[anchor] = node;
  }

  const SourceText& source_;
  TreeBuilder builder_;
  int documents_ = 0;
  std::vector<YAML::anchor_t> open_anchors_;
  std::map<YAML::anchor_t, Node> anchored_;
  std::size_t anchored_values_ = 0;
};

}  // namespace

Node parse_yaml(const SourceText& source) {
  YamlEvents events(source);
  try {
    std::istringstream stream(source.text());
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const YAML::Exception& error) {
    const Place place = error.mark.is_null() ? Place{source.name()}
                                             : source.place(static_cast<std::size_t>(std::max(error.mark.pos, 0)));
    throw UserError(place, "not valid YAML: {}", one_line(error.msg, 160));
  }
  return events.finish();
}

}  // namespace strata::config
