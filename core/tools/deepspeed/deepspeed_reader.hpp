// The work of translate_deepspeed (deepspeed.hpp): deepspeed_reader.cpp which keys there are and how ours are written,
// deepspeed_rows.cpp what a row of the table does, deepspeed_rules.cpp what several keys decide together.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/deepspeed/deepspeed.hpp"
#include "tools/deepspeed/deepspeed_table.hpp"

namespace strata::config {

class DeepSpeedReader {
 public:
  // `settings` are --set's; `device` is the plugin that the run will have.
  DeepSpeedReader(Node file, const Node& settings, std::string device, const PluginSource& plugins,
                  const DialectAnswers& answers);

  // `compat` and `allowed` from --set, see translate_deepspeed.
  void read(const Node& compat, const Node& allowed);

  Node tree;
  Translation report;

 private:
  using Count = std::optional<std::int64_t>;
  struct Leaf {
    std::string path;
    Place place;  // of the key
    const Node* value;
    const Node* row;
  };

  void apply_aliases();
  void collect(const Node& section, const std::string& path);
  void unknown(const Entry& entry, const std::string& path, const std::vector<std::string>& known);
  void block(const Entry& entry, const std::string& path, const Node& row);
  const Node* given(const std::string& path) const;  // null when left out or null
  const Node* set(const std::string& path) const;    // what --set says
  bool is_automatic(const std::string& path) const;
  Count count(const std::string& path, const char* minimum = "1") const;  // none: left out, "auto"
  bool is_allowed(const std::string& path) const;
  bool exists(const std::string& target) const;
  std::string expand(std::string target) const;
  std::string typed(const Leaf& leaf) const;  // the value in one spelling; throws UserError when its type is wrong
  // Puts a value of ours; what was put, for a line: "a.b = c", and that --set changes it.
  std::string put(const std::string& path, Node value, const Place& place, const std::string& origin);
  std::string put(const std::string& path, const std::string& value, const Place& place, const std::string& origin);
  std::string put_from(const Leaf& leaf, const std::string& path, const Node& value);
  std::string also(const Leaf& leaf, const Node& value);
  void line(const Leaf& leaf, const std::string& text);
  void refuse(const Leaf& leaf, const std::string& reason);  // returns when that is allowed

  void visit(const Leaf& leaf);
  void take(const Leaf& leaf, const std::string& canonical);
  void without_target(const Leaf& leaf);
  void automatic(const Leaf& leaf);
  void hidden_size_rule(const Leaf& leaf, const std::string& target, const Node& rule);
  void emit_default(const std::string& path, const Node& row);
  void fill();

  void choose_precision();
  void choose_partitioner();
  void refuse_optimizer() const;
  std::string choose_type(const std::string& block, const std::string& names, const std::string& target);
  void choose_momentum();
  bool rule(const Leaf& leaf, const std::string& name);  // false: the row goes on as any other
  void csv_monitor(const Leaf& leaf);
  std::int64_t stages() const;
  bool is_pipelined() const;
  void pipeline(const Leaf& leaf);
  void batch();
  Count micro_batches(Count samples, Count micro, Count total) const;
  void hand_on(const std::string& path, const std::string& target, Count value, const Leaf* automatic);

  const DeepSpeedTable& table_ = DeepSpeedTable::get();
  Node file_;
  const Node& settings_;
  std::string device_;
  const PluginSource& plugins_;
  const DialectAnswers& answers_;
  std::string compat_;
  std::vector<std::string> allowed_;
  std::vector<Leaf> leaves_;
  std::set<std::string> dropped_;  // "auto" that DeepSpeed reads as left out
  std::string partitioner_, precision_, optimizer_, schedule_;
  std::int64_t stage_ = 0;
};

// A scalar as YAML spells it.
Node scalar_node(const std::string& text, const Place& place = {}, const std::string& origin = "");
std::string spelled(const Node& node);  // a scalar or a list of them, for people

}  // namespace strata::config
