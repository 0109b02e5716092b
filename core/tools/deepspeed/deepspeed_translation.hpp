// A ds_config on its way to Strata's keys: what a row of keys.yaml does with a value, and the rules, which are what
// several keys decide together. A source for each subject.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "resolve/dialect.hpp"
#include "tools/deepspeed/deepspeed_file.hpp"

namespace strata::deepspeed {

using Count = std::optional<std::int64_t>;

config::Node scalar_node(std::string text);
// The name before the first dot of a path.
std::string first_part(const std::string& path);

class DeepSpeedTranslation {
 public:
  DeepSpeedTranslation(std::vector<config::Node>& trees, const config::PluginSource& plugins,
                       const resolve::DialectAnswers& answers);
  // `compat` and `allowed` are the settings deepspeed_compat and deepspeed_allow.
  void read(const config::Node* compat, const config::Node* allowed);

  config::Node tree;
  resolve::Translation report;

 private:
  // What --set says.
  const config::Node* set(const std::string& path) const;
  // Whether the engine, or the plugin that the target names, has such a key. An unknown plugin is for resolve to
  // refuse.
  bool exists(const std::string& target) const;
  // With what was chosen in the place of {partitioner} and its like.
  std::string expand(std::string text) const;
  // The value in one spelling; throws UserError when its type is wrong.
  std::string typed(const DeepSpeedKey& key) const;
  Count count(const std::string& path) const;
  // Puts a value of ours; what was put, for a line: "a.b = c", and that --set changes it.
  std::string put(const std::string& path, config::Node value, const Place& place, const std::string& origin);
  std::string put_from(const DeepSpeedKey& key, const std::string& path, const config::Node& value);
  std::string also(const DeepSpeedKey& key);
  void line(const DeepSpeedKey& key, const std::string& text, const std::string& derived = "");
  // Returns when that is allowed.
  void refuse(const DeepSpeedKey& key, const std::string& reason);
  void visit(const DeepSpeedKey& key);
  void block(const DeepSpeedKey& key);
  void take(const DeepSpeedKey& key, const std::string& canonical);
  // What was chosen has no such option.
  void without_target(const DeepSpeedKey& key);
  void automatic(const DeepSpeedKey& key);
  void hidden_size_rule(const DeepSpeedKey& key, const std::string& target, const config::Node& rule);

  // deepspeed_choices.cpp: the plugins.
  void choose_version(const config::Node* compat);
  // The plugin of a section of ours; --set wins.
  void choose(const std::string& slot, const std::string& plugin, const Place& place, const std::string& origin);
  void say_chosen(const DeepSpeedKey& key);
  void choose_precision();
  void choose_partitioner();
  // The plugin that a block names by its `type`; where there is no block, what --set says. Its parameters are looked at
  // later: a refused type may have some that no other has.
  void choose_type(const std::string& block, const config::Node& types);
  // Where the schedule cycles the momentum, DeepSpeed sets both of Adam's betas, the second to 0.99, and leaves
  // optimizers without betas alone.
  void choose_momentum();

  // deepspeed_defaults.cpp: what a ds_config leaves out.
  struct Default {
    std::string value;
    std::string owner;   // whose default it is
    std::string reason;  // why it is that one's
  };
  // The default of a row with a `default_rule`; nothing where the row's own holds.
  std::optional<Default> default_by_rule(const std::string& rule) const;
  // DeepSpeed's default, where it is not ours.
  void emit_default(const std::string& path, const config::Node& row);
  void fill();

  // deepspeed_idle.cpp: what does nothing beside other keys.
  // What --set says of a key of ours, else the translation; empty: neither.
  std::string value_of(const std::string& target) const;
  void leave_out(const std::string& target, const std::string& reason);
  void leave_out_idle();

  // deepspeed_rules.cpp: pipeline and batch, and the keys that the table gives a rule.
  // False: the row goes on as any other.
  bool rule(const DeepSpeedKey& key, const std::string& name);
  // optimizer.type in small letters, as DeepSpeed compares it.
  std::string optimizer_type() const;
  // One folder of ours from three keys.
  void csv_monitor(const DeepSpeedKey& key);
  std::int64_t stages() const;
  bool is_pipelined() const;
  void pipeline(const DeepSpeedKey& key);
  // train_batch_size, train_micro_batch_size_per_gpu and gradient_accumulation_steps: what is known is handed on, and
  // resolve derives or compares the rest (batch.hpp). A batch of which nothing but "auto" is known is Hugging Face's.
  void batch();
  // How many micro-batches a step has. Where the micro-batch is not DeepSpeed's, `samples`, they are not DeepSpeed's.
  Count micro_batches(Count samples, Count micro, Count total) const;
  // `automatic`: the key whose "auto" is a whole batch; its line says what that is.
  void hand_on(const std::string& path, const std::string& target, Count value, const std::string& automatic);

  const std::string device_;  // that the run will have
  const config::PluginSource& plugins_;
  const resolve::DialectAnswers& answers_;
  DeepSpeedFile file_;
  const config::Node settings_;
  std::vector<std::string> allowed_;
  std::vector<DeepSpeedKey> keys_;
  std::set<std::string> dropped_;              // "auto" that DeepSpeed reads as left out
  std::map<std::string, std::string> chosen_;  // the plugin of each section of ours, and the `version` of DeepSpeed
  std::string stage_;
};

}  // namespace strata::deepspeed
